/* corro's C ABI: the only symbols libcorro.so exports.
 *
 *   corro_error error;
 *   corro_engine *engine = NULL;
 *   corro_options options = {.struct_size = sizeof options};  // all else from the environment
 *   if (corro_engine_create(&options, &engine, &error)) { puts(error.message); return 1; }
 *   float x[4] = {1, 2, 3, 4};
 *   corro_op op = {.struct_size = sizeof op, .kind = CORRO_ALLREDUCE, .dtype = CORRO_F32,
 *                  .reduce_op = CORRO_SUM, .input = x, .output = x, .count = 4};
 *   corro_work *work = NULL;
 *   corro_code code = corro_submit(corro_engine_world(engine), &op, 1, CORRO_NOW, &work, &error);
 *   if (work) code = corro_work_wait(work, -1, &error);
 *   corro_work_release(work);
 *   if (code) puts(error.message);
 *   corro_engine_destroy(engine);
 *
 * Every function is thread-safe unless it says otherwise. Functions that can fail return a
 * corro_code (0 is success) and fill *error when it is not NULL. Nothing here prints, exits or
 * throws.
 */
#ifndef CORRO_CORRO_H_
#define CORRO_CORRO_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORRO_API __attribute__((visibility("default")))

/* gRPC's canonical codes. */
typedef int32_t corro_code;
enum {
  CORRO_OK = 0,
  CORRO_CANCELLED = 1,
  CORRO_UNKNOWN = 2,
  CORRO_INVALID_ARGUMENT = 3, /* also: ranks called with different shapes, dtypes, ops or roots */
  CORRO_DEADLINE_EXCEEDED = 4,
  CORRO_NOT_FOUND = 5,
  CORRO_ALREADY_EXISTS = 6,
  CORRO_PERMISSION_DENIED = 7,
  CORRO_RESOURCE_EXHAUSTED = 8,
  CORRO_FAILED_PRECONDITION = 9, /* for example: used in a forked child, or after destroy */
  CORRO_ABORTED = 10,
  CORRO_OUT_OF_RANGE = 11,
  CORRO_UNIMPLEMENTED = 12,
  CORRO_INTERNAL = 13,
  CORRO_UNAVAILABLE = 14, /* a rank was lost: error.rank says which */
  CORRO_DATA_LOSS = 15,
  CORRO_UNAUTHENTICATED = 16
};

typedef struct corro_error {
  corro_code code;
  int32_t rank;   /* world rank of the culprit, or -1 */
  uint8_t torn;   /* 1 if the output buffer may hold partial results */
  char op[24];    /* "allreduce", ... */
  char phase[40]; /* what the operation was doing */
  char message[640];
} corro_error;

enum {
  CORRO_BOOL,
  CORRO_U8,
  CORRO_I8,
  CORRO_I16,
  CORRO_I32,
  CORRO_I64,
  CORRO_F16,
  CORRO_BF16,
  CORRO_F32,
  CORRO_F64,
  CORRO_U16,
  CORRO_U32,
  CORRO_U64
};
/* CORRO_ADASUM: adaptive summation, pairwise over the ranks: (1 - a.b / 2|a|^2) a + (1 - a.b /
 * 2|b|^2) b of the whole buffers of two. For CORRO_ALLREDUCE of f16, bf16, f32 and f64. */
enum { CORRO_SUM, CORRO_AVERAGE, CORRO_MIN, CORRO_MAX, CORRO_PRODUCT, CORRO_ADASUM };
enum {
  CORRO_ALLREDUCE,
  CORRO_ALLGATHER,
  CORRO_REDUCESCATTER,
  CORRO_ALLTOALL,
  CORRO_BROADCAST,
  CORRO_REDUCE,
  CORRO_GATHER,
  CORRO_SCATTER,
  CORRO_BARRIER,
  CORRO_SEND,
  CORRO_RECV
};

typedef struct corro_engine corro_engine;
typedef struct corro_group corro_group;
typedef struct corro_work corro_work;
typedef struct corro_epochs corro_epochs;
typedef struct corro_queue corro_queue;

/* A key-value store to find the other ranks with (for example a torch Store). Called on the thread
 * that creates the engine only. put and get return 0 on success. get blocks until the key exists,
 * copies at most capacity bytes and returns the length in *length; it returns CORRO_STORE_MISSING
 * if timeout_ms is over before, and is asked again then. Any other value is a failure of the store,
 * which ends the creation of the engine with UNAVAILABLE. */
enum { CORRO_STORE_MISSING = 1 };

typedef struct corro_store {
  void* context;
  int (*put)(void* context, const char* key, const void* value, size_t length);
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* length,
             int64_t timeout_ms);
} corro_store;

/* A membership epoch that has begun, as this process sees it. */
typedef struct corro_epoch {
  size_t struct_size; /* sizeof(corro_epoch) */
  uint32_t epoch;     /* 1, 2, ...; numbers may be left out */
  int32_t rank;
  int32_t size;
  int32_t last; /* 1: all members save what they have, and end with status 75 */
} corro_epoch;

/* Zero means: from the environment (CORRO_RANK, CORRO_SIZE, ...; see docs/environment.md), else a
 * world of one. */
typedef struct corro_options {
  size_t struct_size; /* sizeof(corro_options) */
  int32_t has_rank;   /* 1: rank and size below count, not the environment's */
  int32_t rank;
  int32_t size;
  const char* job;          /* names the rendezvous; the same on every rank. NULL: CORRO_JOB_ID */
  const corro_store* store; /* NULL: the agent, or CORRO_BOOTSTRAP */
  int64_t timeout_ns;       /* default deadline of every wait, and of the rendezvous */
  /* Asked on the thread that creates the engine, several times a second while it waits for other
   * ranks: not 0 ends that with CANCELLED. NULL: never */
  int (*interrupted)(void* context);
  void* interrupted_context;
  int64_t join_timeout_ns; /* deadline of the rendezvous; 0: timeout_ns */
  /* A newer epoch for which nothing can wait, since ranks were lost, ends the rendezvous with
   * CANCELLED, and later every operation in flight with ABORTED; the engine is to be destroyed then.
   * May be destroyed before the engine. NULL: none */
  corro_epochs* epochs;
} corro_options;

/* The job is elastic if its launcher says so (`corro run --min-np`): when ranks come or go, a new
 * membership epoch begins. Then this process destroys its engine, and makes one of the new epoch,
 * with the rank and the size that it has there, and a job name that tells the epoch from others.
 *
 * Connects to this host's agent, to hear of epochs. FAILED_PRECONDITION if the job is not elastic.
 * Thread-safe, as the calls below. */
CORRO_API corro_code corro_epochs_create(corro_epochs** epochs, corro_error* error);
CORRO_API void corro_epochs_destroy(corro_epochs* epochs);
/* The newest epoch that the members were told of, which may not have begun; 0: there was no other
 * than the first. If ranks join or have to leave, members are told before the epoch's engines end:
 * they call corro_engine_end_epoch() once they have ended a step. Never blocks. */
CORRO_API uint32_t corro_epochs_prepared(corro_epochs* epochs);
/* Why that comes, as a line for people, cut at `size` - 1 bytes and ended with a NUL. Returns the
 * length of the whole. */
CORRO_API size_t corro_epochs_why(corro_epochs* epochs, char* text, size_t size);
/* Says that this process was asked to end. An epoch is prepared for the end of a step; this process
 * has no part in it, and is killed when it begins. If the job cannot go on without it, that epoch is
 * the last one, and all take part in it. Does not wait for that. UNAVAILABLE or DEADLINE_EXCEEDED if
 * the agent does not hear. */
CORRO_API corro_code corro_epochs_leave(corro_epochs* epochs, corro_error* error);
/* Says that this process has destroyed its engine after it has applied `steps` optimizer steps, or
 * that it is new in the job and has none, and blocks until an epoch begins that it has not seen.
 * `lost`: the rank whose loss has ended the epoch for this process, or -1: where that rank lives, a
 * link between the two is cut, and the job goes on without one of them.
 * DEADLINE_EXCEEDED after `timeout_ns`;
 * CANCELLED when `interrupted`, asked several times a second, says so (NULL: never); UNAVAILABLE if
 * the agent is gone, or has ended this member's part in the job. */
CORRO_API corro_code corro_epochs_next(corro_epochs* epochs, uint64_t steps, int32_t lost,
                                       int64_t timeout_ns, int (*interrupted)(void* context),
                                       void* context, corro_epoch* next, corro_error* error);

/* What a rank tells people who look at the job: on the screen, on the dashboard, in events. Each call
 * connects to this host's agent and waits for no answer. FAILED_PRECONDITION if no `corro run` has
 * started this process; UNAVAILABLE or DEADLINE_EXCEEDED (after 10 s) if the agent does not hear.
 * Thread-safe.
 *
 * A checkpoint of this step is durable, in this folder ("": not said). */
CORRO_API corro_code corro_report_checkpoint(uint64_t step, const char* path, corro_error* error);
/* The job runs under the plan of this name: 1 to 63 bytes, else INVALID_ARGUMENT. */
CORRO_API corro_code corro_report_plan(const char* name, corro_error* error);
/* How training is at this step beside what was planned, in a line. */
CORRO_API corro_code corro_report_training(uint64_t step, const char* text, corro_error* error);
/* What that plan is, as JSON of at most 4088 bytes: docs/dashboard.md. A longer one is left out. */
CORRO_API corro_code corro_report_decisions(const char* json, corro_error* error);

/* Finds the other ranks, connects to them and starts the progress thread. Blocks until every rank
 * has joined or the deadline is over. A process may hold several engines. */
CORRO_API corro_code corro_engine_create(const corro_options* options, corro_engine** engine,
                                         corro_error* error);
/* Says goodbye to the peers. Pending and later operations fail with CANCELLED, so that other
 * threads come back from their calls. FAILED_PRECONDITION, and nothing done, in a forked child. */
CORRO_API corro_code corro_engine_close(corro_engine* engine);
/* Ends the epoch for this process, as a newer one does: pending and later operations fail with
 * ABORTED and `why`. Others hear of it when the engine is destroyed. */
CORRO_API corro_code corro_engine_end_epoch(corro_engine* engine, const char* why,
                                            corro_error* error);
/* Closes the engine and releases everything. Not while another thread is in a call of this engine,
 * of its groups or works. Groups of this engine are invalid afterwards; works can be asked whether
 * they are done, waited for if they are, and released. In a forked child it does nothing. */
CORRO_API void corro_engine_destroy(corro_engine* engine);

CORRO_API int32_t corro_engine_rank(const corro_engine* engine);
CORRO_API int32_t corro_engine_size(const corro_engine* engine);
CORRO_API int32_t corro_engine_local_rank(
    const corro_engine* engine); /* among the ranks on this host, in rank order */
CORRO_API int32_t corro_engine_local_size(const corro_engine* engine);
CORRO_API int32_t
corro_engine_node_rank(const corro_engine* engine); /* hosts numbered by their lowest rank */
CORRO_API int32_t corro_engine_nodes(const corro_engine* engine);
CORRO_API int32_t corro_engine_node_of(
    const corro_engine* engine, int32_t rank); /* that rank's host; -1: there is no such rank */
/* Tells observers (launcher, doctor) which optimizer step the program is in. Never blocks. */
CORRO_API corro_code corro_engine_set_step(corro_engine* engine, uint64_t step, corro_error* error);
/* A value that the program logs. */
typedef struct corro_named_value {
  const char* name; /* 1 to 31 bytes of UTF-8 without control characters */
  double value;     /* finite or not */
} corro_named_value;
/* Shows observers values of a step: the newest one of each name, of which a process has 16. `of`: the
 * steps of the whole training, from which observers know how far it is; 0: not said here. The step
 * counts as one of corro_engine_set_step() as long as that was not called. Never blocks. All values
 * are taken, or none: INVALID_ARGUMENT for a name, RESOURCE_EXHAUSTED for the 17th of them. */
CORRO_API corro_code corro_engine_log(corro_engine* engine, uint64_t step,
                                      const corro_named_value* values, size_t count, uint64_t of,
                                      corro_error* error);

/* Of the operations that wait for another rank, the one that has waited longest. */
typedef struct corro_wait {
  size_t struct_size; /* sizeof(corro_wait) */
  int32_t rank;       /* world rank that is waited for; -1: nobody is */
  char op[24];        /* "allreduce", ... */
  char name[32];      /* as it was given, at most 31 bytes; or "" */
  int64_t waited_ns;
} corro_wait;
/* Never blocks. Waits for ranks that have not submitted a name are seen after a second. */
CORRO_API corro_code corro_engine_longest_wait(corro_engine* engine, corro_wait* wait,
                                               corro_error* error);
/* Begins a timeline: a file in Chrome's trace format, for Perfetto and the like, of what all ranks
 * do: operations, and firings of loaded plans. Every rank calls it, and rank 0 writes `path`; of a
 * rank that does not call it nothing is in the file. It can be parsed at any moment, also after a
 * rank was killed; it is a few hundredths of a second behind. mark_cycles 1: also when named
 * operations were started together. Operations are not slowed down by the file: what it cannot take
 * is left out, and the file says how much.
 * FAILED_PRECONDITION while there is one already; rank 0: the file cannot be made. */
CORRO_API corro_code corro_timeline_start(corro_engine* engine, const char* path, int mark_cycles,
                                          corro_error* error);
/* Ends it: the file is whole when rank 0 returns. Every rank calls it; one that does not is waited
 * for a second. Fails if the file could not be written. Does nothing without a timeline; the
 * engine's end ends it, too. */
CORRO_API corro_code corro_timeline_stop(corro_engine* engine, corro_error* error);

CORRO_API corro_group* corro_engine_world(corro_engine* engine);
/* Makes a group of the given world ranks (ascending or not: the order is the group's rank order).
 * Only its members need to call; a rank that is no member gets NULL. Members make groups of the
 * same ranks in the same order, or give each a name (NULL: none), by which they find each other;
 * groups of one name are made in the same order. Does not communicate: one name for different
 * members is INVALID_ARGUMENT, with both lists, in the first operation. */
CORRO_API corro_code corro_group_create(corro_engine* engine, const int32_t* ranks, int32_t size,
                                        const char* name, corro_group** group, corro_error* error);
CORRO_API void corro_group_destroy(
    corro_group* group); /* not while it has works in flight; never the world */
/* Gives a group a number in this process, by which a plug-in of a framework finds it that has not made
 * it; another group of this number loses it. Numbers below 0 are corro's own. */
CORRO_API corro_code corro_group_number(corro_group* group, int32_t number, corro_error* error);
/* Finds it. The group and its engine are not destroyed before corro_group_let_go(), which is therefore
 * called soon, on any thread: whoever destroys them waits. FAILED_PRECONDITION if there is none of this
 * number, and in a forked child. */
CORRO_API corro_code corro_group_find(int32_t number, corro_group** group, corro_error* error);
CORRO_API void corro_group_let_go(corro_group* group);
CORRO_API corro_engine* corro_group_engine(corro_group* group);
CORRO_API int32_t corro_group_rank(const corro_group* group);
CORRO_API int32_t corro_group_size(const corro_group* group);
/* Writes at most size bytes, the terminating NUL among them, of a text that says how the group's
 * operations run: which algorithm from which size on, predicted times, and the measured link.
 * Returns the length of the whole text without its NUL. Never blocks. */
CORRO_API size_t corro_group_selection_table(const corro_group* group, char* text, size_t size);

/* A small form in which floating-point contributions to an ALLREDUCE travel. Functions are called
 * by the engine's thread, for several operations one after another; they do not block and call
 * nothing of this library. encode and decode return 0, or another number if they fail, which ends
 * the group on every rank. Copied: what it points to stays valid until the engine's end. */
typedef struct corro_codec {
  size_t struct_size; /* sizeof(corro_codec) */
  const char* name;   /* 1 to 32 bytes; the same on every rank, and none of this library's */
  void* context;      /* given to the functions */
  uint8_t folds;      /* 1: count elements become count elements of folded_dtype, which are reduced
                         as they are. 0: every rank gets all small forms and reduces what they
                         decode to, in the order of ranks */
  uint8_t folded_dtype;
  /* 0: elements of this dtype, CORRO_F16 to CORRO_F64, travel as they are; the others always do */
  int (*applies_to)(void* context, uint8_t dtype);
  /* Bytes of the small form, at most 2^40, the same on every rank. Not called if it folds. */
  uint64_t (*encoded_bytes)(void* context, uint8_t dtype, uint64_t count);
  int (*encode)(void* context, uint8_t dtype, const void* from, uint64_t count, void* into);
  int (*decode)(void* context, uint8_t dtype, const void* from, uint64_t count, void* into);
} corro_codec;
/* Casts larger numbers to dtype, which is CORRO_F16, CORRO_BF16 or CORRO_F32; else NULL. The same
 * address each time. */
CORRO_API const corro_codec* corro_cast_codec(uint8_t dtype);

/* clang-format off */
/* One operation. Buffers are contiguous and stay valid and untouched until the work is done. input
 * and output lie apart or, in place, begin at the same address; with ALLGATHER and GATHER input is then
 * the rank's own block of output, with SCATTER output the root's own block of input. Other overlaps are
 * refused. Counts are elements of dtype; where counts is NULL, all are equal to count:
 *
 *   ALLREDUCE      input[count] -> output[count] on every rank
 *   ALLGATHER      input[count] -> output[sum of counts] on every rank; counts[r] = rank r's count
 *   REDUCESCATTER  input[sum of counts] -> output[counts[rank]]; without counts: count for each rank
 *   ALLTOALL       input: send_counts[r] for rank r; output: counts[r] from rank r; both or neither
 *   BROADCAST      the root's input[count] -> output[count] on every rank
 *   REDUCE         input[count] -> the root's output[count]; others' output may be NULL
 *   GATHER         input[count] -> the root's output: counts[r] from rank r
 *   SCATTER        the root's input: counts[r] for rank r -> output[count]
 *   BARRIER        no buffers
 *   SEND, RECV     input[count] to, output[count] from group rank root, matched by tag in order
 *
 * Where counts is given, it has to be given on every rank (GATHER, SCATTER: the same array). */
/* clang-format on */
typedef struct corro_op {
  size_t struct_size; /* sizeof(corro_op) */
  uint8_t kind;
  uint8_t dtype;
  uint8_t reduce_op;
  uint8_t has_scales; /* 1: prescale and postscale count even where they are 0 */
  int32_t root;       /* group rank of the root, or the peer of SEND and RECV */
  uint32_t tag;       /* SEND and RECV */
  const void* input;
  void* output;
  uint64_t count;
  const uint64_t* counts;
  const uint64_t* send_counts;
  double prescale;    /* 0 means 1: each contribution is multiplied and rounded to dtype before the
                         reduction */
  double postscale;   /* 0 means 1: the result is multiplied before it is rounded to dtype */
  int64_t timeout_ns; /* 0: the engine's default */
  const char* name;   /* for messages and records, and what CORRO_NAMED goes by; NULL: none */
  const uint64_t* dims; /* what the ranks' shapes have to agree in beside the count: all dims, or
                           those of a row where dim 0 may differ. NULL: not compared */
  int32_t ndim;         /* dims has so many, 0 for a scalar */
  const corro_codec* codec; /* of an ALLREDUCE; NULL: it travels as it is */
  const char* element;      /* what the elements are if dtype is only how they are moved, such as
                               "complex64" for CORRO_U8: the ranks have to agree in it; NULL: dtype */
  /* Not NULL: an ALLGATHER or ALLTOALL with CORRO_NAMED, of rows of `dims`, whose numbers the other
   * ranks do not know. count is that of this rank's rows, for an ALLTOALL send_counts are those for
   * each rank; counts and output are NULL. Called once, with the number of rows that come from each
   * rank, unless the operation fails before; returns memory for all of them, or NULL, which fails it
   * here. On a thread of the engine, or with CORRO_NOW on the calling one: it does not block, and
   * calls of this library nothing but corro_arena_alloc. All operations of a corro_submit have one,
   * or none has. */
  void* (*allocate)(void* context, const uint64_t* rows);
  void* allocate_context;
  uint64_t row; /* with allocate: the elements of a row; 0: the product of dims */
} corro_op;

/* How corro_submit starts operations; flags that may be combined. */
enum {
  /* Members may submit in different orders: each operation starts once every member has submitted
   * one of its name (1 to 512 bytes), which need not be in one call. Small ones that are ready
   * together run as one, in batches of at most CORRO_FUSION_BYTES; results are the same. They keep
   * no order with operations without names. INVALID_ARGUMENT on every rank, naming both sides,
   * where members' operations of a name differ; ALREADY_EXISTS for a name that waits;
   * DEADLINE_EXCEEDED, naming them, for ranks that have not submitted it in time: the group stays
   * usable. Not for SEND and RECV. */
  CORRO_NAMED = 1,
  /* The calling thread moves the operations itself as long as that need not sleep: the fast path,
   * without memory of its own for a small one whose peers are there. If they are over then, *work
   * is NULL and their result is returned; else *work is to be waited for. */
  CORRO_NOW = 2
};
/* Starts n operations as one unit. Without CORRO_NOW it returns at once. Operations without names
 * start in the order of these calls, which has to be the same on every member. *work is done when
 * all are; release it once. */
CORRO_API corro_code corro_submit(corro_group* group, const corro_op* ops, size_t n, uint32_t flags,
                                  corro_work** work, corro_error* error);

/* Says that this rank submits no named operations to the group any more until every member has said
 * so, which ends the work. Meanwhile the others' named allreduces go on without this rank: it takes
 * part with an identity (0 for SUM, say), and an AVERAGE is that of those who submitted. Their
 * other named operations fail with FAILED_PRECONDITION, and so does what this rank submits. What it
 * submitted before counts as ever. *last gets the world rank that joined last; it has to stay valid
 * until the work is done. timeout_ns 0: it waits for ever. At its deadline the work ends with
 * DEADLINE_EXCEEDED, which names ranks that have not joined; this rank stays joined, and may call
 * again. ALREADY_EXISTS while a work of this waits. Returns at once. */
CORRO_API corro_code corro_join(corro_group* group, int32_t* last, int64_t timeout_ns,
                                corro_work** work, corro_error* error);

/* Blocks until the work is done; timeout_ns < 0: the operation's own deadline only. Returns the
 * work's result, or DEADLINE_EXCEEDED with the work still going when timeout_ns is over. May be
 * called by several threads. */
CORRO_API corro_code corro_work_wait(corro_work* work, int64_t timeout_ns, corro_error* error);
CORRO_API int corro_work_done(const corro_work* work);
CORRO_API void corro_work_release(corro_work* work); /* NULL: does nothing */
/* Cookies of works that are done, for a thread that waits for many. Each client in a process, such as
 * a plug-in of a framework, has a queue of its own, for works of any engine. */
CORRO_API corro_code corro_queue_create(corro_queue** queue, corro_error* error);
/* Puts cookie on the queue once the work is done (at once if it is). Once for each work; the work may
 * be released meanwhile. */
CORRO_API void corro_work_notify(corro_work* work, corro_queue* queue, uint64_t cookie);
/* Blocks for the next cookie. DEADLINE_EXCEEDED after timeout_ns (negative: never); CANCELLED once the
 * queue is closed and empty. */
CORRO_API corro_code corro_queue_next(corro_queue* queue, uint64_t* cookie, int64_t timeout_ns);
/* Who waits comes back once it is empty. */
CORRO_API void corro_queue_close(corro_queue* queue);
/* Not while another thread is in a call of it. Cookies of works that are not done are lost. */
CORRO_API void corro_queue_destroy(corro_queue* queue);

/* A plan: services on lanes, joined by channels, of all ranks of a group. docs/plan.md says what
 * its parts mean; the structs say the same as the file. Numbers of lanes, channels and services are
 * their places in these lists. */
enum { CORRO_ORDER_PRIORITY, CORRO_ORDER_AGREED };
typedef struct corro_plan_lane {
  const char* name;
  uint8_t order;
  uint32_t depth;        /* firings in flight at a time, at least 1 */
  const uint32_t* ranks; /* of the group, ascending */
  size_t rank_count;
} corro_plan_lane;
typedef struct corro_plan_channel {
  const char* name;
  uint32_t slots;   /* at least 1 */
  uint32_t initial; /* readable before the first firing */
  uint64_t slot_bytes;
  int64_t transfer_ns;
} corro_plan_channel;
/* What the engine itself copies as a service, on threads of its own: an input's filled bytes into
 * an output's slot, a range of a file into an output's slot, an input's filled bytes into a range
 * of a file. The range of its firing n, from 0, begins at byte offset + (n % count) * stride, with
 * count 0 at offset + n * stride. A copy has one input and one output with memory, a read the output alone,
 * a write the input alone; other channels of it are tokens. */
enum { CORRO_COPY_MEMORY, CORRO_COPY_READ, CORRO_COPY_WRITE };
typedef struct corro_plan_copy {
  uint8_t kind;
  const char* path; /* as the rank's process finds it; NULL for memory */
  uint64_t offset;
  uint64_t stride;
  uint64_t count;
} corro_plan_copy;
typedef struct corro_plan_service {
  const char* name;
  uint32_t lane;
  int32_t priority;
  uint32_t lag;   /* generations behind, on lanes in agreed order */
  uint32_t every; /* micro-batches of one firing, which comes with the last of them; 0: 1 */
  int64_t duration_ns;
  const uint32_t* inputs; /* channels */
  size_t input_count;
  const uint32_t* outputs;
  size_t output_count;
  uint8_t has_operation; /* 1: it is the collective that follows */
  uint8_t kind;
  uint8_t dtype;
  uint8_t reduce_op;
  uint32_t root; /* a rank of the group */
  uint64_t count;
  const corro_plan_copy* copy; /* NULL: none; else no operation */
} corro_plan_service;
typedef struct corro_plan_spec {
  size_t struct_size; /* sizeof(corro_plan_spec) */
  uint32_t ranks;     /* as many as the group has */
  const corro_plan_lane* lanes;
  size_t lane_count;
  const corro_plan_channel* channels;
  size_t channel_count;
  const corro_plan_service* services;
  size_t service_count;
} corro_plan_spec;
typedef struct corro_slot {
  void* data;
  uint64_t bytes;
} corro_slot;
/* The caller's memory for all slots of a channel that lies on this rank: slot_bytes each, aligned
 * for what is computed on them. Transfers and collectives read and write it where it is, until
 * corro_plan_unload has returned; what is readable at the start is what it holds. */
typedef struct corro_plan_memory {
  uint32_t channel;
  const corro_slot* slots;
  size_t slot_count;
} corro_plan_memory;
typedef struct corro_plan_options {
  size_t struct_size; /* sizeof(corro_plan_options) */
  uint32_t first;     /* the micro-batch with which all begins; a multiple of every `every` */
  int64_t timeout_ns; /* of a firing that waits for other ranks or for a thread; 0: the engine's */
  const corro_plan_memory* memory; /* other channels' slots are arena memory, zeroed */
  size_t memory_count;
} corro_plan_options;

typedef struct corro_plan corro_plan;
typedef struct corro_lane corro_lane;

/* Loads a plan: every member loads the same ones in the same order. Collectives, transfers between
 * ranks and copies run by themselves; firings on other lanes of this rank are pulled by threads of
 * the caller. options may be NULL. Does not communicate, and nothing fires before corro_plan_run.
 * INVALID_ARGUMENT for a plan that is not well formed, or for memory that is not that of its slots
 * on this rank; FAILED_PRECONDITION for one that would stand still, RESOURCE_EXHAUSTED for one
 * whose slots are too large.
 *
 * Nothing is compared either. Members whose plans differ never hear of each other: each waits for
 * the others until the timeout, and DEADLINE_EXCEEDED says nothing of the difference. A program
 * that cannot be sure compares the digests before corro_plan_run. */
CORRO_API corro_code corro_plan_load(corro_group* group, const corro_plan_spec* spec,
                                     const corro_plan_options* options, corro_plan** plan,
                                     corro_error* error);
/* A number that members compare: equal if they have loaded the same plan, with the same
 * options.first, and as often on this group before. Never blocks. All members' numbers are equal
 * if the least is the greatest, which one allreduce shows:
 *
 *   uint64_t ends[2] = {corro_plan_digest(plan), ~corro_plan_digest(plan)};
 *   corro_op least = {.struct_size = sizeof least, .kind = CORRO_ALLREDUCE, .dtype = CORRO_U64,
 *                     .reduce_op = CORRO_MIN, .input = ends, .output = ends, .count = 2};
 *   corro_work *work = NULL;
 *   corro_code code = corro_submit(group, &least, 1, CORRO_NOW, &work, &error);
 *   if (work) code = corro_work_wait(work, -1, &error);
 *   corro_work_release(work);
 *   if (code) puts(error.message);
 *   else if (ends[0] != ~ends[1]) puts("not all ranks have loaded the same plan");
 */
CORRO_API uint64_t corro_plan_digest(const corro_plan* plan);
/* Lets every service fire for micro-batches below until, one with `every` if all of its own are. *work is done when all of them are
 * complete on this rank, or fails with the reason for which the plan has stopped: which service,
 * which micro-batch, which rank. Does not block. */
CORRO_API corro_code corro_plan_run(corro_plan* plan, uint32_t until, corro_work** work,
                                    corro_error* error);
/* Stops it on all ranks with this code and message. A plan stops by itself when a firing fails or
 * is late, on any rank, or a rank is lost; then it stays stopped. */
CORRO_API corro_code corro_plan_stop(corro_plan* plan, corro_code code, const char* message,
                                     corro_error* error);
/* 1 if the plan has stopped; never blocks. */
CORRO_API int corro_plan_stopped(const corro_plan* plan);
/* The least micro-batch that a service has not completed on this rank: survivors of a plan that has
 * stopped load another one, on a group of theirs, whose first is the least of all of them, rounded
 * down to a multiple of the largest `every`. */
CORRO_API corro_code corro_plan_completed(corro_plan* plan, uint32_t* micro, corro_error* error);
/* The same of one service, by its place in the plan: it may be ahead of others. NOT_FOUND if it is
 * not on this rank. */
CORRO_API corro_code corro_plan_completed_by(corro_plan* plan, uint32_t service, uint32_t* micro,
                                             corro_error* error);
/* Keeps the arena memory of this rank's slots, also when the plan is unloaded and the engine is
 * destroyed, until corro_arena_free(*memory) is called, once for each call of this. NULL if the
 * slots have none. */
CORRO_API corro_code corro_plan_keep_memory(corro_plan* plan, void** memory, corro_error* error);
/* The memory of a slot, to fill what is readable at the start; valid until the plan is unloaded.
 * NOT_FOUND if it does not lie on this rank. */
CORRO_API corro_code corro_plan_slot(corro_plan* plan, uint32_t channel, uint32_t slot, void** data,
                                     uint64_t* bytes, corro_error* error);
/* Writes what each service waits for, as corro_group_selection_table writes its text. */
CORRO_API size_t corro_plan_describe(corro_plan* plan, char* text, size_t size);
/* Forgets the plan and its lanes; one that is running stops on all ranks. Not while another thread
 * is in a call of them. Before its group and its engine are destroyed. */
CORRO_API void corro_plan_unload(corro_plan* plan);

/* A firing in the hands of the caller; its slots are his until corro_firing_done. */
typedef struct corro_firing {
  uint32_t service;
  uint32_t micro; /* the last of them, of a service with `every` */
  /* In the order of the plan, as far as they are filled; of a channel from a service that fires n
   * times as often n slots, in the order of time. */
  const corro_slot* inputs;
  size_t input_count;
  const corro_slot* outputs;
  size_t output_count;
  corro_lane* lane;
  uint32_t ticket[2];
} corro_firing;
/* NULL for a lane that this rank does not have, or that is not pulled. Valid as long as the plan.
 */
CORRO_API corro_lane* corro_plan_lane_of(corro_plan* plan, uint32_t lane);
/* Blocks until a service of the lane fires; moves the engine meanwhile, as long as that need not
 * sleep. timeout_ns < 0: until the plan stops. DEADLINE_EXCEEDED after it; why the plan has
 * stopped, if it has (corro_plan_stopped). The plan stops if a firing of another lane has waited
 * for a thread for its timeout, while none computes and nothing else moves; so does a
 * corro_work_wait for it. Between this call and corro_firing_done a thread may take as long as it
 * likes. For any number of threads. */
CORRO_API corro_code corro_lane_next(corro_lane* lane, corro_firing* firing, int64_t timeout_ns,
                                     corro_error* error);
/* Says how many bytes of an output this firing has filled, instead of all of its slot: a transfer to
 * another rank sends no more, and inputs of its consumers have as many. Collectives read what their
 * count says all the same. Does not block. */
CORRO_API corro_code corro_firing_fill(const corro_firing* firing, size_t output, uint64_t bytes,
                                       corro_error* error);
/* The firing is complete; with a code other than 0 it has failed, which stops the plan on all ranks
 * with this message (NULL: none). On any thread, once. Does not block. */
CORRO_API corro_code corro_firing_done(const corro_firing* firing, corro_code code,
                                       const char* message, corro_error* error);

/* clang-format off */
/* Buckets: gradients that are reduced together while the rest of them is still being computed.
 *
 *   corro_bucket_part weight = {.struct_size = sizeof weight, .dtype = CORRO_F32, .bucket = 0,
 *                               .data = gw, .count = 100};
 *   corro_bucket_part bias = weight;
 *   bias.data = gb;
 *   bias.count = 10;
 *   corro_bucket_part parts[2] = {weight, bias};
 *   corro_bucket_options how = {.struct_size = sizeof how, .reduce_op = CORRO_AVERAGE};
 *   corro_bucket_set *set = NULL;
 *   corro_bucket_create(group, parts, 2, &how, &set, &error);
 *   for (uint64_t generation = 0; generation < steps; ++generation) {
 *     // compute gw; corro_bucket_ready(set, 0, &error); compute gb; corro_bucket_ready(set, 1, &error);
 *     corro_bucket_close(set, generation, 0, &error);
 *     corro_bucket_wait(set, CORRO_ALL_BUCKETS, -1, &error);
 *     // use gw and gb, the same on every rank
 *     corro_bucket_next(set, &error);
 *   }
 *
 * A generation is one step of an optimizer, and begins where the last one ended, by create or next. In it every part comes `passes`
 * times: once in each backward pass, whose gradient is added to the part's memory. A bucket is reduced once all its parts have come
 * so often, and the buckets before it are on their way: in the order of their numbers, on every rank. close() says that no more
 * comes in these passes: parts that never came are zeroed, and the buckets that waited are reduced.
 *
 * A part that comes more often (a second backward before the step, a layer that is used twice under reentrant checkpointing) is
 * added to what is reduced or will be; the next close() reduces all buckets once more. That is right for a plain average alone: with
 * another reduce_op, scales or a codec it is refused. All members have to do the same: a rank that reduces once more than
 * another is an error on every rank.
 *
 * Sets have a lane of their own: they wait neither for each other nor for other operations of their group. A failure (a lost rank, a
 * deadline, another generation elsewhere) ends the set on every member: waits return it, with the rank, the bucket and the generation. */
/* clang-format on */
typedef struct corro_bucket_set corro_bucket_set;

/* One gradient of this rank. Its memory is the set's from ready() until the bucket is reduced.
 * Where the parts of a bucket follow each other in memory without a gap the bucket is reduced in
 * place, without a copy if the memory is the arena's; else it is gathered in memory of the engine.
 */
typedef struct corro_bucket_part {
  size_t struct_size; /* sizeof(corro_bucket_part) */
  uint8_t dtype;      /* the same for all parts of a bucket */
  uint32_t bucket;    /* 0 and up, none left out */
  void* data;
  uint64_t count;   /* elements; the same on every member */
  const char* name; /* for messages; NULL: its number */
} corro_bucket_part;

typedef struct corro_bucket_options {
  size_t struct_size; /* sizeof(corro_bucket_options) */
  uint8_t reduce_op;
  uint8_t has_scales; /* 1: prescale and postscale count even where they are 0 */
  uint32_t passes;    /* 0 means 1 */
  double prescale;    /* as in corro_op, in the dtype that travels */
  double postscale;
  int64_t timeout_ns;       /* of each reduction; 0: the engine's default */
  const corro_codec* codec; /* of each bucket as a whole; NULL: none */
} corro_bucket_options;

/* Makes a set of buckets on the group; its options and parts, but for their memory, are the same on
 * every member, and members make their sets in the same order. Does not block and does not
 * communicate. INVALID_ARGUMENT names the part that is wrong. */
CORRO_API corro_code corro_bucket_create(corro_group* group, const corro_bucket_part* parts,
                                         size_t n, const corro_bucket_options* options,
                                         corro_bucket_set** set, corro_error* error);
/* The part's gradient of one more pass is in its memory. Wait-free; from any thread, in any order.
 * FAILED_PRECONDITION if it comes too often and cannot be reduced again; its memory then holds
 * something that belongs to no step. */
CORRO_API corro_code corro_bucket_ready(corro_bucket_set* set, uint32_t part, corro_error* error);
/* No more parts come in the passes so far; not at the same time as calls of ready() that belong to
 * them. Does not block. A call for a generation that is over does nothing, as does a second one
 * when no part has come since. `word` is anything that members have to agree on in this generation,
 * such as a hash of what they did with the last one: where they differ, waits fail on every rank
 * with INVALID_ARGUMENT. The generation's first call says it; later ones change nothing of it. */
CORRO_API corro_code corro_bucket_close(corro_bucket_set* set, uint64_t generation, uint64_t word,
                                        corro_error* error);
#define CORRO_ALL_BUCKETS UINT32_MAX
/* Blocks until what may be reduced of this bucket is: its parts hold the result. CORRO_ALL_BUCKETS:
 * of all buckets; after close() these are all, before it those that are on their way. timeout_ns <
 * 0: the reductions' own deadline only; DEADLINE_EXCEEDED, with the set as it was, when timeout_ns
 * is over. */
CORRO_API corro_code corro_bucket_wait(corro_bucket_set* set, uint32_t bucket, int64_t timeout_ns,
                                       corro_error* error);
/* Begins the next generation. FAILED_PRECONDITION while this one is not closed and reduced. */
CORRO_API corro_code corro_bucket_next(corro_bucket_set* set, corro_error* error);
/* Says that no gradients come on this rank until every member has said so: meanwhile the others'
 * generations go on with zeros of this rank, which are written into its parts; of a generation that
 * is not over here, what is not on its way counts as zeros. Does not block: corro_bucket_wait of
 * all buckets does until all have joined, and the next generation, whose number is the same on all
 * members, has begun. */
CORRO_API corro_code corro_bucket_join(corro_bucket_set* set, corro_error* error);
CORRO_API uint64_t corro_bucket_generation(const corro_bucket_set* set); /* 0 first */
/* How often the part has come on this rank in this generation. */
CORRO_API uint32_t corro_bucket_came(const corro_bucket_set* set, uint32_t part);
/* 1 if the part has come on any rank, once the set is closed and waited for: in this generation or,
 * where a later close() has reduced once more, since the close before that. */
CORRO_API int corro_bucket_came_anywhere(const corro_bucket_set* set, uint32_t part);
/* Lets go of the parts' memory. NULL: does nothing. Not while another thread is in a call of this
 * set. Reductions in flight end on every member with CANCELLED; before the group's or the engine's
 * end. */
CORRO_API void corro_bucket_destroy(corro_bucket_set* set);

/* Memory that local peers can map: collectives on it need no copy. 64-byte aligned, zero-filled. It
 * is valid until it is freed, also after its engine has been destroyed. What a forked child stores
 * there is its own; what it reads and has not stored to may be newer than the fork. NULL on
 * failure. */
CORRO_API void* corro_arena_alloc(corro_engine* engine, size_t bytes, corro_error* error);
/* In a forked child, or with NULL, this does nothing. */
CORRO_API void corro_arena_free(void* memory);

/* What the engine counts, and how much there is now, by name ("ops", "failures", "bytes_sent",
 * "in_flight", ...: docs/metrics.md); the sum over transports; 0 if unknown. Never blocks. */
CORRO_API uint64_t corro_engine_counter(const corro_engine* engine, const char* name);
CORRO_API const char* corro_version(void);

#ifdef __cplusplus
}
#endif

#endif /* CORRO_CORRO_H_ */
