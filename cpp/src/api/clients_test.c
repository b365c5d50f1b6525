/* A plug-in beside the program that has made the engine: it finds a group by its number, waits on a
 * queue of its own, and gathers rows whose number it does not know. Two ranks in plain C, run by
 * `corro run -np 2`. */
#include <corro/corro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER = 7, COOKIE = 42, ROW = 3 };
static corro_error error;

static int fails(corro_code code, const char* what) {
  if (code != CORRO_OK) fprintf(stderr, "%s: %s\n", what, error.message);
  return code != CORRO_OK;
}

static int expect(int holds, const char* what) {
  if (!holds) fprintf(stderr, "%s\n", what);
  return !holds;
}

/* What comes, made when it is known how much does. */
typedef struct {
  uint64_t rows[2];
  float* data;
} arrival;

static void* make(void* context, const uint64_t* rows) {
  arrival* come = context;
  memcpy(come->rows, rows, sizeof come->rows);
  return come->data = malloc((rows[0] + rows[1]) * ROW * sizeof(float) + 1);
}

static void* make_nothing(void* context, const uint64_t* rows) {
  (void)context;
  (void)rows;
  return NULL;
}

/* Runs the operation on this thread as far as it can. */
static corro_code run_now(corro_group* group, corro_op* op) {
  corro_work* work = NULL;
  corro_code code = corro_submit(group, op, 1, CORRO_NAMED | CORRO_NOW, &work, &error);
  if (work == NULL) return code;
  code = corro_work_wait(work, -1, &error);
  corro_work_release(work);
  return code;
}

/* Starts the operation, and waits for it on the queue if there is one. */
static corro_code run(corro_group* group, corro_queue* queue, corro_op* op) {
  corro_work* work = NULL;
  op->struct_size = sizeof *op;
  op->dtype = CORRO_F32;
  if (queue == NULL) return run_now(group, op);
  corro_code code = corro_submit(group, op, 1, CORRO_NAMED, &work, &error);
  if (code != CORRO_OK) return code;
  corro_work_notify(work, queue, COOKIE);
  uint64_t cookie = 0;
  if (corro_queue_next(queue, &cookie, -1) != CORRO_OK || cookie != COOKIE) abort();
  code = corro_work_wait(work, 0, &error);
  corro_work_release(work);
  return code;
}

/* Rank r has r + 1 rows, of its number. */
static int gather(corro_group* group, corro_queue* queue, int rank) {
  const uint64_t row = ROW;
  float mine[2 * ROW];
  for (int i = 0; i < 2 * ROW; ++i) mine[i] = (float)rank;
  arrival come = {{0, 0}, NULL};
  corro_op op = {.kind = CORRO_ALLGATHER, .input = mine, .count = (uint64_t)rank + 1,
                 .name = "rows", .dims = &row, .ndim = 1, .allocate = make,
                 .allocate_context = &come};
  int wrong = fails(run(group, queue, &op), "allgather");
  wrong += expect(come.rows[0] == 1 && come.rows[1] == 2, "allgather: rows");
  for (int i = 0; wrong == 0 && i < 3 * ROW; ++i)
    wrong += expect(come.data[i] == (i < ROW ? 0.0F : 1.0F), "allgather: data");
  free(come.data);
  return wrong;
}

/* Rank r sends r rows to rank 0, and one to rank 1. */
static int exchange(corro_group* group, corro_queue* queue, int rank) {
  const uint64_t row = ROW;
  const uint64_t sent[2] = {(uint64_t)rank, 1};
  float mine[2 * ROW];
  for (int i = 0; i < 2 * ROW; ++i) mine[i] = (float)(10 * rank + i / ROW);
  arrival come = {{0, 0}, NULL};
  corro_op op = {.kind = CORRO_ALLTOALL, .input = mine, .send_counts = sent, .name = "exchanged",
                 .dims = &row, .ndim = 1, .allocate = make, .allocate_context = &come};
  int wrong = fails(run(group, queue, &op), "alltoall");
  const uint64_t from[2] = {rank == 0 ? 0 : 1, 1};
  wrong += expect(memcmp(come.rows, from, sizeof from) == 0, "alltoall: rows");
  if (wrong == 0 && rank == 0) wrong += expect(come.data[0] == 10.0F, "alltoall: to rank 0");
  if (wrong == 0 && rank == 1)
    wrong += expect(come.data[0] == 0.0F && come.data[ROW] == 11.0F, "alltoall: to rank 1");
  free(come.data);
  return wrong;
}

/* What cannot be is refused at once, or fails the operation. */
static int refuse(corro_group* group, corro_queue* queue) {
  const uint64_t row = ROW;
  float mine[ROW] = {0};
  corro_op op = {.kind = CORRO_ALLREDUCE, .input = mine, .count = 1, .name = "no rows",
                 .dims = &row, .ndim = 1, .allocate = make};
  int wrong = expect(run(group, queue, &op) == CORRO_INVALID_ARGUMENT, "an allreduce of rows");
  op.kind = CORRO_ALLGATHER;
  op.allocate = make_nothing;
  op.name = "nothing made";
  return wrong + expect(run(group, queue, &op) == CORRO_RESOURCE_EXHAUSTED, "no memory");
}

int main(void) {
  const corro_options options = {.struct_size = sizeof options};
  corro_engine* engine = NULL;
  corro_group* group = NULL;
  corro_queue* queue = NULL;
  if (fails(corro_queue_create(&queue, &error), "queue")) return 1;
  int wrong = expect(corro_group_find(NUMBER, &group, &error) == CORRO_FAILED_PRECONDITION,
                     "found a group without an engine");
  if (fails(corro_engine_create(&options, &engine, &error), "create")) return 1;
  wrong += fails(corro_group_number(corro_engine_world(engine), NUMBER, &error), "number");
  wrong += fails(corro_group_find(NUMBER, &group, &error), "find");
  wrong += expect(group == corro_engine_world(engine), "another group");
  wrong += expect(corro_group_engine(group) == engine, "another engine");

  const int rank = corro_engine_rank(engine);
  wrong += gather(group, queue, rank) + exchange(group, queue, rank) + refuse(group, queue);
  wrong += gather(group, NULL, rank) + exchange(group, NULL, rank) + refuse(group, NULL);

  corro_group_let_go(group);
  corro_engine_destroy(engine);
  wrong += expect(corro_group_find(NUMBER, &group, &error) == CORRO_FAILED_PRECONDITION,
                  "found a group of an engine that is gone");
  uint64_t cookie = 0;
  corro_queue_close(queue);
  wrong += expect(corro_queue_next(queue, &cookie, -1) == CORRO_CANCELLED, "a closed queue");
  corro_queue_destroy(queue);
  return wrong;
}
