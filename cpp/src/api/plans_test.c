/* Two ranks run plans in plain C: they find out whether they have loaded the same one, before they
 * wait for each other in it, give slots memory of their own, and copy a file. Run by `corro run -np 2`. */
#include <corro/corro.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
  /* Those of a caller that knows of no memory yet. */
  const corro_plan_options options = {.struct_size = offsetof(corro_plan_options, memory),
                                      .first = first};
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

/* A channel from rank 0 to rank 1, whose slots are `mine` on either. */
static corro_plan* load_handover(corro_group* group, const corro_slot* mine, size_t slots) {
  static const uint32_t ranks[2] = {0, 1};
  static const uint32_t channel = 0;
  const corro_plan_lane lanes[2] = {{"gives", CORRO_ORDER_PRIORITY, 1, &ranks[0], 1},
                                    {"takes", CORRO_ORDER_PRIORITY, 1, &ranks[1], 1}};
  const corro_plan_channel way = {.name = "way", .slots = 2, .slot_bytes = sizeof(uint64_t)};
  const corro_plan_service services[2] = {
      {.name = "give", .lane = 0, .outputs = &channel, .output_count = 1},
      {.name = "take", .lane = 1, .inputs = &channel, .input_count = 1}};
  const corro_plan_spec spec = {.struct_size = sizeof spec,
                                .ranks = 2,
                                .lanes = lanes,
                                .lane_count = 2,
                                .channels = &way,
                                .channel_count = 1,
                                .services = services,
                                .service_count = 2};
  const corro_plan_memory memory = {.channel = channel, .slots = mine, .slot_count = slots};
  const corro_plan_options options = {
      .struct_size = sizeof options, .memory = &memory, .memory_count = 1};
  corro_plan* plan = NULL;
  const corro_code code = corro_plan_load(group, &spec, &options, &plan, &error);
  return fails(code, "load with memory") ? NULL : plan;
}

/* What rank 0 writes into its memory comes into that of rank 1. */
static int hand_over(corro_group* group, uint32_t rank) {
  uint64_t mine[2] = {0, 0};
  const corro_slot slots[2] = {{&mine[0], sizeof mine[0]}, {&mine[1], sizeof mine[1]}};
  corro_plan* plan = load_handover(group, slots, 2);
  corro_work* work = NULL;
  if (plan == NULL || fails(corro_plan_run(plan, 3, &work, &error), "run")) return 1;
  int wrong = 0;
  for (uint32_t micro = 0; micro < 3; ++micro) {
    corro_firing firing;
    if (fails(corro_lane_next(corro_plan_lane_of(plan, rank), &firing, -1, &error), "next"))
      return 1;
    const corro_slot slot = rank == 0 ? firing.outputs[0] : firing.inputs[0];
    wrong += expect(slot.data == &mine[micro % 2], 1, "the slot is the own memory");
    if (rank == 0) mine[micro % 2] = 100 + micro;
    wrong += expect((int)mine[micro % 2], (int)(100 + micro), "what was handed over");
    wrong += fails(corro_firing_done(&firing, CORRO_OK, NULL, &error), "done");
  }
  wrong += fails(corro_work_wait(work, -1, &error), "wait");
  corro_work_release(work);
  void* arena = plan;
  wrong += fails(corro_plan_keep_memory(plan, &arena, &error), "keep");
  wrong += expect(arena == NULL, 1, "the arena has no part in it");
  corro_plan_unload(plan);
  return wrong;
}

static int refuse_memory(corro_group* group) {
  uint64_t mine = 0;
  const corro_slot slot = {&mine, sizeof mine};
  fputs("next, one line that refuses memory: ", stderr);
  corro_plan* plan = load_handover(group, &slot, 1);
  const char* line = "plan: memory: channel \"way\" has 2 slots, and was given 1";
  return expect(plan == NULL && strcmp(error.message, line) == 0, 1, "the refusal");
}

/* Rank 0 reads a file, number by number, and rank 1 writes another one. */
static corro_plan* load_file_copy(corro_group* group, const char* from, const char* into) {
  static const uint32_t ranks[2] = {0, 1};
  static const uint32_t channel = 0;
  const uint64_t number = sizeof(uint64_t);
  const corro_plan_lane lanes[2] = {{"in", CORRO_ORDER_PRIORITY, 1, &ranks[0], 1},
                                    {"out", CORRO_ORDER_PRIORITY, 1, &ranks[1], 1}};
  const corro_plan_channel way = {.name = "way", .slots = 2, .slot_bytes = number};
  const corro_plan_copy read = {.kind = CORRO_COPY_READ, .path = from, .stride = number};
  const corro_plan_copy write = {.kind = CORRO_COPY_WRITE, .path = into, .stride = number};
  const corro_plan_service services[2] = {
      {.name = "load", .lane = 0, .outputs = &channel, .output_count = 1, .copy = &read},
      {.name = "save", .lane = 1, .inputs = &channel, .input_count = 1, .copy = &write}};
  const corro_plan_spec spec = {.struct_size = sizeof spec,
                                .ranks = 2,
                                .lanes = lanes,
                                .lane_count = 2,
                                .channels = &way,
                                .channel_count = 1,
                                .services = services,
                                .service_count = 2};
  corro_plan* plan = NULL;
  return fails(corro_plan_load(group, &spec, NULL, &plan, &error), "load copies") ? NULL : plan;
}

static int copy_file(corro_group* group, uint32_t rank) {
  enum { kNumbers = 5 };
  uint64_t numbers[kNumbers] = {7, 11, 13, 17, 19};
  char from[64], into[64]; /* The ranks have one parent. */
  snprintf(from, sizeof from, "%s/corro-from-%d", P_tmpdir, (int)getppid());
  snprintf(into, sizeof into, "%s/corro-into-%d", P_tmpdir, (int)getppid());
  FILE* file = rank == 0 ? fopen(from, "w") : NULL;
  if (file != NULL) fwrite(numbers, sizeof numbers, 1, file);
  if (file != NULL) fclose(file);
  corro_plan* plan = load_file_copy(group, from, into);
  corro_work* work = NULL;
  if (plan == NULL || fails(corro_plan_run(plan, kNumbers, &work, &error), "run")) return 1;
  int wrong = fails(corro_work_wait(work, -1, &error), "wait");
  corro_work_release(work);
  corro_plan_unload(plan);
  if (rank == 1) {
    uint64_t found[kNumbers] = {0};
    file = fopen(into, "r");
    const int whole = file != NULL && fread(found, sizeof found, 1, file) == 1;
    if (file != NULL) fclose(file);
    wrong += expect(whole && memcmp(found, numbers, sizeof found) == 0, 1, "the file's copy");
  }
  remove(rank == 0 ? from : into);
  return wrong;
}

int main(void) {
  corro_engine* engine = NULL;
  const corro_options options = {.struct_size = sizeof options};
  if (fails(corro_engine_create(&options, &engine, &error), "init")) return 1;
  const uint32_t rank = (uint32_t)corro_engine_rank(engine);
  corro_group* world = corro_engine_world(engine);
  int wrong = expect(corro_engine_size(engine), 2, "ranks");
  if (wrong == 0) wrong = compare(world, rank) + hand_over(world, rank) + refuse_memory(world);
  if (wrong == 0) wrong = copy_file(world, rank);
  corro_engine_destroy(engine);
  return wrong != 0;
}
