/* Trains y = 3 x + 1 on two ranks, in plain C. The data of each rank alone is one too high or one
 * too low: only averaged gradients lead to the right line. Run by `corro run -np 2`. */
#include <corro/corro.h>
#include <math.h>
#include <stdio.h>

static corro_error error;

static int fails(corro_code code, const char* what) {
  if (code != CORRO_OK) fprintf(stderr, "%s: %s\n", what, error.message);
  return code != CORRO_OK;
}

static int train(corro_engine* engine) {
  float weight = 0, bias = 0, of_weight, of_bias;
  const float off = corro_engine_rank(engine) == 0 ? 1 : -1;
  const corro_bucket_part parts[2] = {{.struct_size = sizeof parts[0],
                                       .dtype = CORRO_F32,
                                       .bucket = 0,
                                       .data = &of_bias,
                                       .count = 1,
                                       .name = "bias"},
                                      {.struct_size = sizeof parts[0],
                                       .dtype = CORRO_F32,
                                       .bucket = 1,
                                       .data = &of_weight,
                                       .count = 1,
                                       .name = "weight"}};
  const corro_bucket_options average = {.struct_size = sizeof average, .reduce_op = CORRO_AVERAGE};
  corro_bucket_set* set = NULL;
  if (fails(corro_bucket_create(corro_engine_world(engine), parts, 2, &average, &set, &error),
            "create"))
    return 1;
  for (uint64_t step = 0; step < 300; ++step) {
    of_weight = of_bias = 0;
    for (int i = 0; i < 5; ++i) of_bias += weight * i + bias - (3 * i + 1 + off);
    if (fails(corro_bucket_ready(set, 0, &error), "ready")) return 1;
    for (int i = 0; i < 5; ++i) of_weight += (weight * i + bias - (3 * i + 1 + off)) * i;
    if (fails(corro_bucket_ready(set, 1, &error), "ready") ||
        fails(corro_bucket_close(set, step, 0, &error), "close") ||
        fails(corro_bucket_wait(set, CORRO_ALL_BUCKETS, -1, &error), "wait") ||
        fails(corro_bucket_next(set, &error), "next"))
      return 1;
    weight -= 0.05F * of_weight;
    bias -= 0.05F * of_bias;
  }
  corro_bucket_destroy(set);
  printf("y = %.4f x + %.4f\n", weight, bias);
  return fabsf(weight - 3) < 1e-3F && fabsf(bias - 1) < 1e-3F ? 0 : 1;
}

int main(void) {
  corro_engine* engine = NULL;
  const corro_options options = {.struct_size = sizeof options};
  if (fails(corro_engine_create(&options, &engine, &error), "init")) return 1;
  const int result = corro_engine_size(engine) == 2 ? train(engine) : 1;
  corro_engine_destroy(engine);
  return result;
}
