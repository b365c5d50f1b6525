/* A world of one in plain C: the header alone is enough, and the result is the input. */
#include <corro/corro.h>
#include <stdio.h>

int main(void) {
  corro_error error;
  corro_engine* engine = NULL;
  corro_options options = {.struct_size = sizeof options, .has_rank = 1, .rank = 0, .size = 1};
  if (corro_engine_create(&options, &engine, &error)) {
    fprintf(stderr, "create: %s\n", error.message);
    return 1;
  }
  float x[4] = {1, 2, 3, 4};
  corro_op op = {.struct_size = sizeof op,
                 .kind = CORRO_ALLREDUCE,
                 .dtype = CORRO_F32,
                 .reduce_op = CORRO_SUM,
                 .input = x,
                 .output = x,
                 .count = 4};
  corro_work* work = NULL;
  corro_code code = corro_submit(corro_engine_world(engine), &op, 1, CORRO_NOW, &work, &error);
  if (work != NULL) code = corro_work_wait(work, -1, &error);
  corro_work_release(work);
  if (code != CORRO_OK) {
    fprintf(stderr, "allreduce: %s\n", error.message);
    return 1;
  }
  corro_engine_destroy(engine);
  printf("corro %s from C: %g %g %g %g\n", corro_version(), x[0], x[1], x[2], x[3]);
  return x[0] == 1 && x[3] == 4 ? 0 : 1;
}
