// The C ABI of corro.h over runtime::Driver: engines, groups, operations and arenas. Buckets are in
// bucket_api.cc, plans in plan_api.cc.
//
// No logic. Each function that can fail does the same (handles.h): guarded() turns a Status or an
// exception into a code, check_alive() or check_group() refuses an engine that may not be used, and
// read_struct() reads a struct of an older caller. Then it calls the driver.
//
// corro_submit() reads each corro_op into a request. Without CORRO_NOW the progress thread moves
// them, and the caller gets a handle. With CORRO_NOW the calling thread moves them as long as that
// need not sleep. If they are over then, the caller gets the result and no handle, else a handle
// for what is left. corro_work_wait() waits for a handle. After corro_work_notify()
// corro_queue_next() says when it is done, so one thread can wait for many.
#include <corro/corro.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "api/arena_blocks.h"
#include "api/codec.h"
#include "api/handles.h"
#include "api/numbered_groups.h"
#include "api/sized_ops.h"
#include "base/env.h"
#include "collective/operation/element.h"
#include "runtime/wait_timer.h"
#include "wire/store_bootstrap.h"

using corro::Code;
using corro::Duration;
using corro::Result;
using corro::Status;
using corro::api::check_alive;
using corro::api::check_group;
using corro::api::copy_text;
using corro::api::guarded;
using corro::api::read_struct;
using corro::api::report;
namespace runtime = corro::runtime;

namespace {

constexpr int32_t kMostDims = 1024;

Status read_request(const corro_op& op, int32_t size, corro::collective::OpRequest& request) {
  if (op.kind >= corro::kOpKindCount || op.dtype >= corro::kDTypeCount ||
      op.reduce_op >= corro::kReduceOpCount) {
    return Status(Code::kInvalidArgument, fmt::format("unknown kind {}, dtype {} or reduce_op {}",
                                                      op.kind, op.dtype, op.reduce_op));
  }
  request.kind = static_cast<corro::OpKind>(op.kind);
  request.dtype = static_cast<corro::DType>(op.dtype);
  request.reduce_op = static_cast<corro::ReduceOp>(op.reduce_op);
  request.root = op.root;
  request.tag = op.tag;
  request.input = static_cast<const std::byte*>(op.input);
  request.output = static_cast<std::byte*>(op.output);
  request.count = op.count;
  const bool as_given = op.has_scales != 0;
  request.prescale = op.prescale == 0 && !as_given ? 1 : op.prescale;
  request.postscale = op.postscale == 0 && !as_given ? 1 : op.postscale;
  request.timeout = Duration(op.timeout_ns);
  if (op.codec != nullptr) {
    if (request.kind != corro::OpKind::kAllreduce)
      return {Code::kInvalidArgument, fmt::format("{} has no codec", name_of(request.kind))};
    CORRO_ASSIGN(auto codec, corro::api::read_codec(op.codec));
    if (codec->applies_to(request.dtype)) request.codec = std::move(codec);
  }
  const auto ranks = static_cast<size_t>(size);
  if (op.counts != nullptr) request.counts.assign(op.counts, op.counts + ranks);
  if (op.send_counts != nullptr) request.send_counts.assign(op.send_counts, op.send_counts + ranks);
  if (op.name != nullptr) request.name = op.name;
  if (op.element != nullptr) request.element = corro::collective::element_number(op.element);
  if (op.ndim < 0 || op.ndim > kMostDims)
    return {Code::kInvalidArgument, fmt::format("ndim is {}, not 0 to {}", op.ndim, kMostDims)};
  if (op.dims != nullptr)
    request.shape = corro::collective::pack_shape({op.dims, static_cast<size_t>(op.ndim)});
  return {};
}

struct Requests {
  std::vector<corro::collective::OpRequest> all;
  bool sized = false;  ///< They have `allocate`.
};

Result<Requests> read_requests(corro_group* group, const corro_op* ops, size_t n) {
  if (n == 0) return Status(Code::kInvalidArgument, "no operations given");
  Requests requests{.all = std::vector<corro::collective::OpRequest>(n)};
  size_t having = 0;
  for (size_t i = 0; i < n; ++i) {
    corro_op op;
    CORRO_TRY(read_struct(ops + i, op));
    CORRO_TRY(read_request(op, group->group->facts().size(), requests.all[i]));
    having += op.allocate != nullptr ? 1 : 0;
  }
  requests.sized = having > 0;
  if (having == 0 || having == n) return requests;
  return Status(Code::kInvalidArgument, "all operations have allocate, or none has");
}

Status refuse_allocate() {
  return {Code::kInvalidArgument, "operations with allocate need CORRO_NAMED"};
}

/// Starts the operations on the calling thread; what is left of them, or null with their `result`.
Result<std::shared_ptr<runtime::WorkState>> submit_now(corro_group* group, const corro_op* ops,
                                                       size_t n, bool named, Status& result) {
  runtime::Driver& driver = group->engine->driver();
  if (n == 1 && !named) {
    corro_op op;
    CORRO_TRY(read_struct(ops, op));
    if (op.allocate != nullptr) return refuse_allocate();
    corro::collective::OpRequest request;
    CORRO_TRY(read_request(op, group->group->facts().size(), request));
    return driver.try_run(*group->group, request, result);
  }
  CORRO_ASSIGN(auto requests, read_requests(group, ops, n));
  if (requests.sized && !named) return refuse_allocate();
  std::shared_ptr<runtime::WorkState> state;
  if (requests.sized) {
    CORRO_ASSIGN(state, corro::api::run_sized(group, ops, std::move(requests.all)));
  } else {
    state = std::make_shared<runtime::WorkState>(std::move(requests.all));
    state->named = state->hurry = named;
    driver.try_run(*group->group, state);
  }
  if (!state->done()) return state;
  result = state->status();
  return std::shared_ptr<runtime::WorkState>();
}

Status submit(corro_group* group, const corro_op* ops, size_t n, uint32_t flags,
              corro_work** work) {
  *work = nullptr;
  CORRO_TRY(check_group(group));
  if ((flags & ~uint32_t{CORRO_NAMED | CORRO_NOW}) != 0)
    return {Code::kInvalidArgument, fmt::format("unknown flags {:#x}", flags)};
  const bool named = (flags & CORRO_NAMED) != 0;
  if ((flags & CORRO_NOW) == 0) {
    CORRO_ASSIGN(auto requests, read_requests(group, ops, n));
    if (requests.sized && !named) return refuse_allocate();
    if (requests.sized) {
      auto handle = std::make_unique<corro_work>(group->engine, nullptr);
      CORRO_ASSIGN(handle->state, corro::api::submit_sized(group, ops, std::move(requests.all)));
      *work = handle.release();
      return {};
    }
    auto state = std::make_shared<runtime::WorkState>(std::move(requests.all));
    state->named = named;
    auto handle = std::make_unique<corro_work>(group->engine, state);
    group->engine->driver().submit(*group->group, std::move(state));
    *work = handle.release();
    return {};
  }
  Status result;
  CORRO_ASSIGN(const auto rest, submit_now(group, ops, n, named, result));
  if (rest == nullptr) return result;
  *work = new (std::nothrow) corro_work{group->engine, rest};
  if (*work != nullptr) return {};
  (void)rest->wait(Duration(-1));
  return rest->status();
}

std::unique_ptr<corro::wire::Bootstrap> wrap_store(const corro_store* store) {
  constexpr size_t kLargest = corro::wire::kMaxBootstrapValue;
  return std::make_unique<corro::wire::StoreBootstrap>(corro::wire::StoreCallbacks{
      .put =
          [store](const std::string& key, corro::BytesView value) {
            if (store->put(store->context, key.c_str(), value.data(), value.size()) == 0)
              return Status();
            return Status(Code::kUnavailable, "the store refused " + key);
          },
      .get = [store](const std::string& key,
                     std::chrono::milliseconds timeout) -> Result<corro::Bytes> {
        corro::Bytes value(kLargest);
        size_t length = 0;
        const int result = store->get(store->context, key.c_str(), value.data(), value.size(),
                                      &length, timeout.count());
        if (result == CORRO_STORE_MISSING)
          return Status(Code::kDeadlineExceeded, "the store has no " + key);
        if (result != 0) return Status(Code::kUnavailable, "the store failed to look for " + key);
        if (length > kLargest)
          return Status(Code::kDataLoss, "the store's value of " + key + " is too long");
        value.resize(length);
        return value;
      }});
}

/// WorkState::wait(), and whether the plan is served meanwhile.
bool wait_for_plan(const corro_work& work, Duration timeout) {
  runtime::WorkState& state = *work.state;
  Duration left = timeout < Duration::zero() ? Duration::max() : timeout;
  while (true) {
    const Duration slice = std::min(left, corro::api::kLook);
    if (state.wait(slice)) return true;
    work.engine->driver().call([&](runtime::Engine&) {
      if (!state.done()) work.plan->check_served(corro::monotonic_now());
    });
    left -= slice;
    if (left == Duration::zero()) return state.done();
  }
}

}  // namespace

extern "C" {

corro_code corro_engine_create(const corro_options* given, corro_engine** engine,
                               corro_error* error) {
  return guarded(error, [&]() -> Status {
    *engine = nullptr;
    corro_options options;
    CORRO_TRY(read_struct(given, options));
    CORRO_ASSIGN(const corro::Environment environment, corro::read_environment());
    runtime::JoinOptions join;
    if (options.has_rank != 0) {
      join.rank = options.rank;
      join.size = options.size;
    }
    if (options.job != nullptr) join.job = options.job;
    if (options.timeout_ns > 0) join.timeout = Duration(options.timeout_ns);
    if (options.join_timeout_ns > 0) join.join_timeout = Duration(options.join_timeout_ns);
    if (const corro_store* store = options.store) {
      join.make_store = [store] { return wrap_store(store); };
    }
    if (options.interrupted != nullptr) {
      join.interrupted = [&options] {
        return options.interrupted(options.interrupted_context) != 0;
      };
    }
    if (options.epochs != nullptr) join.epochs = options.epochs->link;
    auto made = std::make_unique<corro_engine>();
    CORRO_ASSIGN(made->joined, runtime::join_job(environment, join));
    made->world = {made.get(), &made->driver().engine().world()};
    made->fork_guard = std::make_unique<corro::api::ForkGuard>(made->joined);
    *engine = made.release();
    return {};
  });
}

corro_code corro_engine_close(corro_engine* engine) {
  return guarded(nullptr, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    engine->driver().close();
    return {};
  });
}

void corro_engine_destroy(corro_engine* engine) {
  if (corro_engine_close(engine) == CORRO_FAILED_PRECONDITION)
    return;  // in a forked child its memory is let go
  corro::api::forget_numbers(engine);
  engine->fork_guard.reset();
  delete engine;
}

int32_t corro_engine_rank(const corro_engine* engine) { return engine->joined.layout.rank; }
int32_t corro_engine_size(const corro_engine* engine) { return engine->joined.layout.size; }
int32_t corro_engine_local_rank(const corro_engine* engine) {
  return engine->joined.layout.local_rank;
}
int32_t corro_engine_local_size(const corro_engine* engine) {
  return engine->joined.layout.local_size;
}
int32_t corro_engine_node_rank(const corro_engine* engine) {
  return engine->joined.layout.node_rank;
}
int32_t corro_engine_nodes(const corro_engine* engine) { return engine->joined.layout.nodes; }
int32_t corro_engine_node_of(const corro_engine* engine, int32_t rank) {
  const runtime::Layout& layout = engine->joined.layout;
  return rank < 0 || rank >= layout.size ? -1 : layout.node_of[static_cast<size_t>(rank)];
}

corro_code corro_engine_end_epoch(corro_engine* engine, const char* why, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    const std::string cause = why;
    engine->driver().call([&](runtime::Engine& all) { all.end_epoch(cause); });
    return {};
  });
}

corro_code corro_engine_set_step(corro_engine* engine, uint64_t step, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    engine->driver().engine().recorder().steps().set_step(step);
    return {};
  });
}

corro_code corro_engine_log(corro_engine* engine, uint64_t step, const corro_named_value* values,
                            size_t count, uint64_t of, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    std::vector<corro::obs::NamedValue> named;
    named.reserve(count);
    for (const corro_named_value& one : std::span(values, count)) {
      if (one.name == nullptr) return {Code::kInvalidArgument, "log: a value needs a name"};
      named.push_back({.name = one.name, .value = one.value});
    }
    return engine->driver().engine().recorder().steps().log(
        step, named, of == 0 ? std::nullopt : std::optional(of));
  });
}

corro_code corro_engine_longest_wait(corro_engine* engine, corro_wait* wait, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    corro_wait found;
    CORRO_TRY(read_struct(wait, found));
    found.rank = -1;
    const auto seen = engine->driver().engine().recorder().snapshot();
    if (const corro::obs::OpSnapshot* op = corro::obs::longest_wait(seen)) {
      found.rank = op->waiting_for;
      if (op->op.kind) copy_text(found.op, corro::name_of(*op->op.kind));
      copy_text(found.name, op->name);
      found.waited_ns =
          corro::monotonic_now().since_start.count() - static_cast<int64_t>(op->started_ns);
    }
    found.struct_size = wait->struct_size;
    std::memcpy(wait, &found, wait->struct_size);
    return {};
  });
}

corro_code corro_timeline_start(corro_engine* engine, const char* path, int mark_cycles,
                                corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    if (path == nullptr || *path == '\0')
      return {Code::kInvalidArgument, "a timeline needs the path of its file"};
    return engine->driver().timeline().start(path, {.marks_cycles = mark_cycles != 0});
  });
}

corro_code corro_timeline_stop(corro_engine* engine, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    return engine->driver().timeline().stop();
  });
}

corro_group* corro_engine_world(corro_engine* engine) { return &engine->world; }

corro_code corro_group_create(corro_engine* engine, const int32_t* ranks, int32_t size,
                              const char* name, corro_group** group, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *group = nullptr;
    CORRO_TRY(check_alive(engine));
    if (ranks == nullptr || size < 1)
      return {Code::kInvalidArgument, "a group needs at least one rank"};
    const std::vector<int32_t> members(ranks, ranks + size);
    Result<runtime::Group*> made = static_cast<runtime::Group*>(nullptr);
    engine->driver().call([&](runtime::Engine& running) {
      made = running.create_group(members, name == nullptr ? "" : name);
    });
    CORRO_TRY(made.status());
    if (*made != nullptr) *group = new corro_group{engine, *made};
    return {};
  });
}

void corro_group_destroy(corro_group* group) {
  if (group == nullptr || group == &group->engine->world) return;
  (void)guarded(nullptr, [group]() -> Status {
    if (group->engine->driver().abandoned()) return {};
    corro::api::forget_numbers(group);
    group->engine->driver().call(
        [group](runtime::Engine& running) { (void)running.destroy_group(*group->group); });
    return {};
  });
  delete group;
}

corro_code corro_group_number(corro_group* group, int32_t number, corro_error* error) {
  return guarded(error, [&] { return corro::api::number_group(group, number); });
}

corro_code corro_group_find(int32_t number, corro_group** group, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *group = nullptr;
    CORRO_ASSIGN(*group, corro::api::find_group(number));
    return {};
  });
}

void corro_group_let_go(corro_group* group) { corro::api::let_go(group); }

corro_engine* corro_group_engine(corro_group* group) { return group->engine; }

int32_t corro_group_rank(const corro_group* group) { return group->group->facts().rank; }
int32_t corro_group_size(const corro_group* group) { return group->group->facts().size(); }

size_t corro_group_selection_table(const corro_group* group, char* text, size_t size) {
  return copy_text(text, size, group->group->describe_selection());
}

corro_code corro_submit(corro_group* group, const corro_op* ops, size_t n, uint32_t flags,
                        corro_work** work, corro_error* error) {
  return guarded(error, [&] { return submit(group, ops, n, flags, work); });
}

corro_code corro_join(corro_group* group, int32_t* last, int64_t timeout_ns, corro_work** work,
                      corro_error* error) {
  return guarded(error, [&]() -> Status {
    *work = nullptr;
    CORRO_TRY(check_group(group));
    if (last == nullptr || timeout_ns < 0)
      return {Code::kInvalidArgument, "join needs a place for its result and no negative timeout"};
    auto state = runtime::make_join_work(last, Duration(timeout_ns));
    auto handle = std::make_unique<corro_work>(group->engine, state);
    group->engine->driver().submit(*group->group, std::move(state));
    *work = handle.release();
    return {};
  });
}

corro_code corro_work_wait(corro_work* work, int64_t timeout_ns, corro_error* error) {
  return guarded(error, [&]() -> Status {
    if (work->state->done()) return work->state->status();  // The engine may be gone.
    CORRO_TRY(check_alive(work->engine));
    const Duration timeout = timeout_ns < 0 ? Duration(-1) : Duration(timeout_ns);
    const runtime::WaitTimer timer(work->engine->driver().engine().recorder().steps());
    if (!(work->plan == nullptr ? work->state->wait(timeout) : wait_for_plan(*work, timeout))) {
      return {Code::kDeadlineExceeded,
              fmt::format("the work is still going after {} ms", timeout_ns / 1'000'000)};
    }
    return work->state->status();
  });
}

int corro_work_done(const corro_work* work) { return work->state->done() ? 1 : 0; }
void corro_work_release(corro_work* work) { delete work; }

corro_code corro_queue_create(corro_queue** queue, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *queue = nullptr;
    *queue = new corro_queue;
    return {};
  });
}

void corro_work_notify(corro_work* work, corro_queue* queue, uint64_t cookie) {
  work->state->notify(queue->cookies, cookie);
}

corro_code corro_queue_next(corro_queue* queue, uint64_t* cookie, int64_t timeout_ns) {
  return guarded(nullptr, [&]() -> Status {
    const Duration timeout = timeout_ns < 0 ? Duration::max() : Duration(timeout_ns);
    CORRO_ASSIGN(*cookie, queue->cookies->pop(timeout));
    return {};
  });
}

void corro_queue_close(corro_queue* queue) { queue->cookies->close(); }
void corro_queue_destroy(corro_queue* queue) { delete queue; }

void* corro_arena_alloc(corro_engine* engine, size_t bytes, corro_error* error) {
  void* memory = nullptr;
  (void)guarded(error, [&]() -> Status {
    CORRO_TRY(check_alive(engine));
    CORRO_ASSIGN(memory, corro::api::allocate_arena(engine->driver().engine().segment(), bytes));
    return {};
  });
  return memory;
}

void corro_arena_free(void* memory) {
  (void)guarded(nullptr, [memory]() -> Status {
    corro::api::free_arena(memory);
    return {};
  });
}

uint64_t corro_engine_counter(const corro_engine* engine, const char* name) {
  if (engine->driver().abandoned()) return 0;
  return engine->driver().engine().recorder().metrics().total(name);
}

const char* corro_version(void) { return CORRO_VERSION; }

}  // extern "C"
