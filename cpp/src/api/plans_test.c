/* Two ranks find out in plain C whether they have loaded the same plan, before they wait for each
 * other in it. Run by `corro run -np 2`. */
#include <corro/corro.h>
#include <stdio.h>

static corro_error error;

static int fails(corro_code code, const char* what) {
  if (code != CORRO_OK) fprintf(stderr, "%s: %s\n", what, error.message);
  return code != CORRO_OK;
}

/* A barrier of both ranks; `depth` makes it this plan or another one. */
static corro_plan* load(corro_group* group, uint32_t depth, uint32_t first) {
  const uint32_t both[2] = {0, 1};
  const corro_plan_lane lane = {"both", CORRO_ORDER_AGREED, depth, both, 2};
  const corro_plan_service meet = {.name = "meet", .has_operation = 1, .kind = CORRO_BARRIER};
  const corro_plan_spec spec = {.struct_size = sizeof spec,
                                .ranks = 2,
                                .lanes = &lane,
                                .lane_count = 1,
                                .services = &meet,
                                .service_count = 1};
  const corro_plan_options options = {.struct_size = sizeof options, .first = first};
  corro_plan* plan = NULL;
  return fails(corro_plan_load(group, &spec, &options, &plan, &error), "load") ? NULL : plan;
}

/* 1: all members have loaded the same; 0: they have not; -1: nobody knows. */
static int same(corro_group* group, const corro_plan* plan) {
  if (plan == NULL) return -1;
  uint64_t ends[2] = {corro_plan_digest(plan), ~corro_plan_digest(plan)};
  const corro_op least = {.struct_size = sizeof least,
                          .kind = CORRO_ALLREDUCE,
                          .dtype = CORRO_U64,
                          .reduce_op = CORRO_MIN,
                          .input = ends,
                          .output = ends,
                          .count = 2};
  corro_work* work = NULL;
  corro_code code = corro_submit(group, &least, 1, CORRO_NOW, &work, &error);
  if (work != NULL) code = corro_work_wait(work, -1, &error);
  corro_work_release(work);
  return fails(code, "allreduce") ? -1 : ends[0] == ~ends[1];
}

static int expect(int found, int wanted, const char* what) {
  if (found != wanted) fprintf(stderr, "%s: %d instead of %d\n", what, found, wanted);
  return found != wanted;
}

static int compare(corro_group* group, uint32_t rank) {
  corro_plan* plan = load(group, 1, 0);
  int wrong = expect(same(group, plan), 1, "the same plan");
  corro_work* work = NULL;
  if (fails(corro_plan_run(plan, 3, &work, &error), "run")) return 1;
  wrong += fails(corro_work_wait(work, -1, &error), "wait");
  corro_work_release(work);

  corro_plan* other = load(group, 2 + rank, 0);
  wrong += expect(same(group, other), 0, "another plan");
  corro_plan* later = load(group, 4, rank);
  wrong += expect(same(group, later), 0, "another first micro-batch");
  /* One rank has loaded it once more before: messages of the two runs never meet. */
  corro_plan* more = rank == 0 ? load(group, 1, 0) : NULL;
  corro_plan* again = load(group, 1, 0);
  wrong += expect(same(group, again), 0, "another number of loads");
  corro_plan* const plans[] = {plan, other, later, more, again};
  for (size_t i = 0; i < sizeof plans / sizeof plans[0]; ++i) corro_plan_unload(plans[i]);
  return wrong;
}

int main(void) {
  corro_engine* engine = NULL;
  const corro_options options = {.struct_size = sizeof options};
  if (fails(corro_engine_create(&options, &engine, &error), "init")) return 1;
  const int32_t rank = corro_engine_rank(engine);
  const int result =
      corro_engine_size(engine) == 2 ? compare(corro_engine_world(engine), (uint32_t)rank) : 1;
  corro_engine_destroy(engine);
  return result;
}
