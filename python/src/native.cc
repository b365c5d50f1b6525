// corro._native: the C ABI as Python objects. No logic here: it converts, releases the GIL around
// every call that may block, and turns a corro_error into the exception class of its code
// (corro.errors.make).
//
//   engine = _native.Engine()
//   op = _native.Op(kind=_native.ALLREDUCE, dtype=_native.F32, input=ptr, output=ptr, count=n)
//   engine.world.run([op], buffers)
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arrays.h"
#include "buckets.h"
#include "corro/corro.h"
#include "engine_ref.h"
#include "plans.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using corro::python::ArrayFacts;
using corro::python::Arrays;
using corro::python::BucketSet;
using corro::python::EnginePtr;
using corro::python::EngineRef;
using corro::python::Exit;
using corro::python::nanoseconds;
using corro::python::Plan;
using corro::python::PlanSpec;
using corro::python::raise;
using corro::python::Seconds;
using corro::python::Work;

/// One operation. Immutable; may be submitted again once it is done (buckets are).
class Op {
 public:
  Op(uint8_t kind, uint8_t dtype, uint8_t reduce_op, int root, uint32_t tag, uintptr_t input,
     uintptr_t output, uint64_t count, std::optional<std::vector<uint64_t>> counts,
     std::optional<std::vector<uint64_t>> send_counts, double prescale, double postscale,
     const Seconds& timeout, std::optional<std::string> name,
     std::optional<std::vector<uint64_t>> dims, uintptr_t codec)
      : counts_(std::move(counts)),
        send_counts_(std::move(send_counts)),
        name_(std::move(name)),
        dims_(std::move(dims)) {
    op_.struct_size = sizeof op_;
    op_.kind = kind;
    op_.dtype = dtype;
    op_.reduce_op = reduce_op;
    op_.root = root;
    op_.tag = tag;
    op_.input = reinterpret_cast<const void*>(input);
    op_.output = reinterpret_cast<void*>(output);
    op_.count = count;
    op_.counts = counts_ ? counts_->data() : nullptr;
    op_.send_counts = send_counts_ ? send_counts_->data() : nullptr;
    op_.has_scales = 1;
    op_.prescale = prescale;
    op_.postscale = postscale;
    op_.timeout_ns = nanoseconds(timeout, 0);
    op_.name = name_ ? name_->c_str() : nullptr;
    op_.codec = reinterpret_cast<const corro_codec*>(codec);
    if (!dims_) return;
    op_.ndim = static_cast<int32_t>(dims_->size());
    dims_->reserve(1);  // A scalar's dims are an address too.
    op_.dims = dims_->data();
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  [[nodiscard]] const corro_op& get() const { return op_; }
  [[nodiscard]] bool fits(size_t group_size) const {
    return (!counts_ || counts_->size() == group_size) &&
           (!send_counts_ || send_counts_->size() == group_size);
  }

 private:
  corro_op op_{};
  std::optional<std::vector<uint64_t>> counts_;
  std::optional<std::vector<uint64_t>> send_counts_;
  std::optional<std::string> name_;
  std::optional<std::vector<uint64_t>> dims_;
};

class Group {
 public:
  Group(EnginePtr engine, corro_group* group, bool owned)
      : engine_(std::move(engine)),
        group_(group),
        owned_(owned),
        rank_(corro_group_rank(group)),
        size_(corro_group_size(group)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (owned_ && engine_->engine != nullptr) corro_group_destroy(group_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  [[nodiscard]] std::string selection_table() const {
    static_cast<void>(engine_->get());
    std::string text(corro_group_selection_table(group_, nullptr, 0), '\0');
    corro_group_selection_table(group_, text.data(), text.size() + 1);
    return text;
  }

  /// `buffers` lives until the operations are done, also if a signal's handler raises before.
  /// `named`: members may give the operations in different orders; their names say which is which.
  void run(const std::vector<const Op*>& ops, const nb::object& buffers, bool named) {
    wait_for_rest(call(CORRO_NOW | flags_of(named), collect(ops)), buffers);
  }

  std::unique_ptr<Work> submit(const std::vector<const Op*>& ops, const nb::object& buffers,
                               bool named) {
    corro_work* work = call(flags_of(named), collect(ops));
    return std::make_unique<Work>(engine_, work, kept(buffers));
  }

  /// corro_join(). `last` is the address of 32 bits in `buffers`, which live until it is done.
  std::unique_ptr<Work> join(uintptr_t last, const nb::object& buffers, const Seconds& timeout) {
    static_cast<void>(engine_->get());
    corro_work* work = nullptr;
    engine_->checked([&](corro_error* error) {
      return corro_join(group_, reinterpret_cast<int32_t*>(last), nanoseconds(timeout, 0), &work,
                        error);
    });
    return std::make_unique<Work>(engine_, work, kept(buffers));
  }

  /// run() of one operation on arrays that have the same shape on every rank: returns `target`, or
  /// an array made for the result if that is None. None, and nothing done, if the engine cannot use
  /// the arrays as they lie.
  nb::object run_array(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                       uint8_t reduce_op, int root, double prescale, double postscale,
                       double timeout) {
    ArrayOp op(arrays, source, target);
    if (!op.usable) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale, timeout);
    corro_work* const rest = call(CORRO_NOW, {&op.op, 1});
    if (rest != nullptr) wait_for_rest(rest, nb::make_tuple(source, target));
    return target;
  }

  /// submit() of the same; returns the work and the target.
  nb::object submit_array(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                          uint8_t reduce_op, int root, double prescale, double postscale,
                          double timeout, const std::optional<nb::str>& name) {
    ArrayOp op(arrays, source, target);
    if (!op.usable) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale, timeout);
    if (name) op.op.name = name->c_str();
    corro_work* work = call(flags_of(name.has_value()), {&op.op, 1});
    return nb::make_tuple(
        std::make_unique<Work>(engine_, work, kept(nb::make_tuple(source, target))), target);
  }

  std::unique_ptr<Plan> load(const PlanSpec& spec, uint32_t first, const Seconds& timeout) {
    return std::make_unique<Plan>(engine_, group_, nb::find(this), spec, first, timeout);
  }

  std::unique_ptr<BucketSet> buckets(const std::vector<BucketSet::Part>& parts, uint8_t reduce_op,
                                     uint32_t passes, double prescale, double postscale,
                                     uintptr_t codec, const nb::object& buffers) {
    return std::make_unique<BucketSet>(engine_, group_, nb::find(this), parts, reduce_op, passes,
                                       prescale, postscale, codec, buffers);
  }

 private:
  /// What the engine is to do with two arrays, as they say what they are.
  struct ArrayOp {
    /// Makes the target if it is None.
    ArrayOp(const Arrays& arrays, const nb::object& source, nb::object& target) {
      const bool in_place = target.is(source);
      if (!arrays.read(source, in_place, in)) return;
      if (target.is_none()) target = arrays.empty_like(source);
      ArrayFacts out;
      if (!in_place && !(arrays.read(target, true, out) && out.same_kind_as(in))) return;
      op.input = in.data;
      op.output = in_place ? in.data : out.data;
      usable = true;
    }

    void fill(uint8_t kind, uint8_t reduce_op, int root, double prescale, double postscale,
              double timeout) {
      op.struct_size = sizeof op;
      op.kind = kind;
      op.dtype = in.dtype;
      op.reduce_op = reduce_op;
      op.root = root;
      op.count = in.count;
      op.has_scales = 1;
      op.prescale = prescale;
      op.postscale = postscale;
      op.timeout_ns = nanoseconds(timeout, 0);
      op.dims = in.dims.data();
      op.ndim = in.ndim;
    }

    ArrayFacts in;
    corro_op op{};
    bool usable = false;
  };

  /// Blocks for what a call has left over: the engine has moved it as far as it could at once.
  void wait_for_rest(corro_work* rest, const nb::object& buffers) {
    if (rest != nullptr) Work(engine_, rest, kept(buffers)).wait(std::nullopt);
  }

  /// What a work in flight needs: its buffers and its group.
  [[nodiscard]] nb::object kept(const nb::object& buffers) const {
    return nb::make_tuple(nb::find(this), buffers);
  }

  static uint32_t flags_of(bool named) { return named ? uint32_t{CORRO_NAMED} : 0; }

  corro_work* call(uint32_t flags, std::span<const corro_op> list) {
    static_cast<void>(engine_->get());
    corro_work* work = nullptr;
    engine_->checked([&](corro_error* error) {
      return corro_submit(group_, list.data(), list.size(), flags, &work, error);
    });
    return work;
  }

  [[nodiscard]] std::vector<corro_op> collect(const std::vector<const Op*>& ops) const {
    std::vector<corro_op> list;
    list.reserve(ops.size());
    for (const Op* op : ops) {
      if (op == nullptr || !op->fits(static_cast<size_t>(size_))) {
        raise(CORRO_INVALID_ARGUMENT, "an Op is needed, whose counts have one entry for each rank");
      }
      list.push_back(op->get());
    }
    return list;
  }

  EnginePtr engine_;
  corro_group* group_;
  bool owned_;
  int rank_;
  int size_;
};

/// An exception of a callback from C, kept until it can be raised.
class Kept {
 public:
  void keep(const nb::python_error& error) { error_.emplace(error); }
  void forget() { error_.reset(); }
  void rethrow() {
    if (error_) throw nb::python_error(*std::exchange(error_, std::nullopt));
  }

 private:
  std::optional<nb::python_error> error_;
};

/// A Python object with put(key, bytes) and get(key, timeout_seconds) -> bytes as a corro_store. An
/// exception in it is kept, and raised instead of the engine's own error.
class PythonStore {
 public:
  explicit PythonStore(nb::object store)
      : store_(std::move(store)), table_{this, &PythonStore::put, &PythonStore::get} {}

  [[nodiscard]] const corro_store* table() const { return store_.is_none() ? nullptr : &table_; }
  void rethrow() { failure_.rethrow(); }

 private:
  static int put(void* context, const char* key, const void* value, size_t length) {
    auto& self = *static_cast<PythonStore*>(context);
    return self.guarded([&] { self.store_.attr("put")(nb::str(key), nb::bytes(value, length)); });
  }

  static int get(void* context, const char* key, void* value, size_t capacity, size_t* length,
                 int64_t timeout_ms) {
    auto& self = *static_cast<PythonStore*>(context);
    return self.guarded([&] {
      const nb::object seconds = nb::float_(static_cast<double>(timeout_ms) / 1e3);
      const auto bytes = nb::cast<nb::bytes>(self.store_.attr("get")(nb::str(key), seconds));
      *length = std::min(bytes.size(), capacity);
      std::memcpy(value, bytes.data(), *length);
    });
  }

  /// What a key that is not there raises is no failure: the engine asks before it puts, and says
  /// itself what it has waited for. Anything else ends the engine's wait.
  template <typename Call>
  int guarded(Call call) {
    if (Exit::elsewhere()) Exit::await();
    const nb::gil_scoped_acquire acquire;
    failure_.forget();
    try {
      call();
      return 0;
    } catch (nb::python_error& error) {
      const nb::object not_there = nb::module_::import_("corro.errors").attr("NotFoundError");
      if (error.matches(not_there)) return CORRO_STORE_MISSING;
      failure_.keep(error);
    } catch (const nb::cast_error&) {
    }
    return kFailed;
  }

  static constexpr int kFailed = CORRO_STORE_MISSING + 1;

  nb::object store_;
  corro_store table_;
  Kept failure_;
};

/// Lets Python's handlers of signals run while an engine is made; keeps what one raises. The end of
/// the interpreter is one, too.
class Signals {
 public:
  static int check(void* context) {
    if (Exit::elsewhere()) Exit::await();
    if (Exit::begun()) return 1;
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return 0;
    static_cast<Signals*>(context)->raised_.keep(nb::python_error());
    return 1;
  }
  void rethrow() { raised_.rethrow(); }

 private:
  Kept raised_;
};

class Engine {
 public:
  Engine(std::optional<int> rank, std::optional<int> size, std::optional<std::string> job,
         nb::object store, const Seconds& timeout, const Seconds& join_timeout) {
    if (rank.has_value() != size.has_value())
      raise(CORRO_INVALID_ARGUMENT, "give both rank and size, or neither");
    PythonStore python_store(std::move(store));
    Signals signals;
    corro_options options{};
    options.struct_size = sizeof options;
    options.has_rank = rank.has_value() ? 1 : 0;
    options.rank = rank.value_or(0);
    options.size = size.value_or(0);
    options.job = job ? job->c_str() : nullptr;
    options.store = python_store.table();
    options.timeout_ns = nanoseconds(timeout, 0);
    options.join_timeout_ns = nanoseconds(join_timeout, 0);
    options.interrupted = &Signals::check;
    options.interrupted_context = &signals;
    try {
      ref_->checked(
          [&](corro_error* error) { return corro_engine_create(&options, &ref_->engine, error); });
    } catch (nb::python_error&) {
      signals.rethrow();
      python_store.rethrow();
      throw;
    }
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { ref_->close(); }

  void close() { ref_->close(); }

  [[nodiscard]] bool closed() const { return ref_->engine == nullptr; }
  [[nodiscard]] int rank() const { return corro_engine_rank(ref_->get()); }
  [[nodiscard]] int size() const { return corro_engine_size(ref_->get()); }
  [[nodiscard]] int local_rank() const { return corro_engine_local_rank(ref_->get()); }
  [[nodiscard]] int local_size() const { return corro_engine_local_size(ref_->get()); }
  [[nodiscard]] int node_rank() const { return corro_engine_node_rank(ref_->get()); }
  [[nodiscard]] int nodes() const { return corro_engine_nodes(ref_->get()); }
  [[nodiscard]] std::vector<int> node_of_ranks() const {
    std::vector<int> hosts(static_cast<size_t>(size()));
    for (size_t rank = 0; rank < hosts.size(); ++rank)
      hosts[rank] = corro_engine_node_of(ref_->get(), static_cast<int32_t>(rank));
    return hosts;
  }
  void set_step(uint64_t step) {
    corro_engine* engine = ref_->get();
    ref_->checked([&](corro_error* error) { return corro_engine_set_step(engine, step, error); });
  }
  /// The rank that is waited for, the operation, its name, seconds; None: nobody waits.
  std::optional<std::tuple<int, std::string, std::string, double>> longest_wait() {
    corro_engine* engine = ref_->get();
    corro_wait wait{};
    wait.struct_size = sizeof wait;
    ref_->checked(
        [&](corro_error* error) { return corro_engine_longest_wait(engine, &wait, error); });
    if (wait.rank < 0) return std::nullopt;
    return std::tuple(wait.rank, std::string(wait.op), std::string(wait.name),
                      static_cast<double>(wait.waited_ns) / 1e9);
  }
  void start_timeline(const std::string& path, bool mark_cycles) {
    corro_engine* engine = ref_->get();
    ref_->checked([&](corro_error* error) {
      return corro_timeline_start(engine, path.c_str(), mark_cycles ? 1 : 0, error);
    });
  }
  void stop_timeline() {
    corro_engine* engine = ref_->get();
    ref_->checked([&](corro_error* error) { return corro_timeline_stop(engine, error); });
  }
  [[nodiscard]] uint64_t counter(const std::string& name) const {
    return corro_engine_counter(ref_->get(), name.c_str());
  }

  std::unique_ptr<Group> world() {
    return std::make_unique<Group>(ref_, corro_engine_world(ref_->get()), false);
  }

  std::unique_ptr<Group> group(const std::vector<int32_t>& ranks,
                               const std::optional<std::string>& name) {
    corro_engine* engine = ref_->get();
    corro_group* group = nullptr;
    ref_->checked([&](corro_error* error) {
      return corro_group_create(engine, ranks.data(), static_cast<int32_t>(ranks.size()),
                                name ? name->c_str() : nullptr, &group, error);
    });
    return group == nullptr ? nullptr : std::make_unique<Group>(ref_, group, true);
  }

  /// Blocks for the next cookie; None after the timeout, or after an hour. On a thread that is
  /// joined before the interpreter ends.
  std::optional<uint64_t> next_completed(const Seconds& timeout) {
    Exit::joins_this_thread();
    corro_engine* engine = ref_->get();
    constexpr int64_t kHour = 3'600'000'000'000;
    const int64_t timeout_ns = nanoseconds(timeout, kHour);
    uint64_t cookie = 0;
    const corro_code code =
        ref_->without_gil([&] { return corro_engine_next_completed(engine, &cookie, timeout_ns); });
    if (code == CORRO_DEADLINE_EXCEEDED) return std::nullopt;
    if (code != CORRO_OK) raise(code, "the engine is shutting down");
    return cookie;
  }

  /// Arena memory as a memoryview of bytes; freed with the last object that uses it.
  nb::ndarray<nb::memview, uint8_t, nb::ndim<1>> alloc(size_t bytes) {
    corro_engine* engine = ref_->get();
    corro_error error{};
    error.rank = -1;
    void* memory = corro_arena_alloc(engine, std::max<size_t>(bytes, 1), &error);
    if (memory == nullptr) raise(error);
    const nb::capsule owner(memory, [](void* held) noexcept { corro_arena_free(held); });
    return {memory, {bytes}, owner};
  }

 private:
  EnginePtr ref_ = std::make_shared<EngineRef>();
};

/// The address of a contiguous buffer, which has to outlive its use.
uintptr_t address(nb::handle buffer) {
  Py_buffer view{};
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto result = reinterpret_cast<uintptr_t>(view.buf);
  PyBuffer_Release(&view);
  return result;
}

void add_constants(nb::module_& module) {
  constexpr std::array kKinds = {"ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL",
                                 "BROADCAST", "REDUCE",    "GATHER",        "SCATTER",
                                 "BARRIER",   "SEND",      "RECV"};
  constexpr std::array kDTypes = {"BOOL", "U8",  "I8",  "I16", "I32", "I64", "F16",
                                  "BF16", "F32", "F64", "U16", "U32", "U64"};
  constexpr std::array kReduceOps = {"SUM", "AVERAGE", "MIN", "MAX", "PRODUCT", "ADASUM"};
  static_assert(kKinds.size() == CORRO_RECV + 1);
  static_assert(kDTypes.size() == CORRO_U64 + 1);
  static_assert(kReduceOps.size() == CORRO_ADASUM + 1);
  for (size_t i = 0; i < kKinds.size(); ++i) module.attr(kKinds[i]) = i;
  for (size_t i = 0; i < kDTypes.size(); ++i) module.attr(kDTypes[i]) = i;
  for (size_t i = 0; i < kReduceOps.size(); ++i) module.attr(kReduceOps[i]) = i;
}

}  // namespace

NB_MODULE(_native, module) {
  nb::set_leak_warnings(
      false);  // Objects of other extensions (torch's hooks) outlive the interpreter.
  module.doc() =
      "The C ABI of libcorro.so as Python objects; use corro, corro.numpy or corro.torch.";
  add_constants(module);
  module.def("version", [] { return corro_version(); });
  module.def("begin_exit", &Exit::begin);
  module.def("address", &address, "buffer"_a);

  corro::python::bind_plans(module);

  nb::class_<Op>(module, "Op")
      .def(nb::init<uint8_t, uint8_t, uint8_t, int, uint32_t, uintptr_t, uintptr_t, uint64_t,
                    std::optional<std::vector<uint64_t>>, std::optional<std::vector<uint64_t>>,
                    double, double, Seconds, std::optional<std::string>,
                    std::optional<std::vector<uint64_t>>, uintptr_t>(),
           nb::kw_only(), "kind"_a, "dtype"_a = static_cast<int>(CORRO_U8),
           "reduce_op"_a = static_cast<int>(CORRO_SUM), "root"_a = 0, "tag"_a = 0, "input"_a = 0,
           "output"_a = 0, "count"_a = 0, "counts"_a = nb::none(), "send_counts"_a = nb::none(),
           "prescale"_a = 1.0, "postscale"_a = 1.0, "timeout"_a = nb::none(), "name"_a = nb::none(),
           "dims"_a = nb::none(), "codec"_a = 0);
  module.def(
      "cast_codec",
      [](uint8_t dtype) { return reinterpret_cast<uintptr_t>(corro_cast_codec(dtype)); },
      "dtype"_a);

  nb::class_<Arrays>(module, "Arrays")
      .def(nb::init<nb::object, nb::object, nb::object>(), "type"_a, "empty_like"_a,
           "dtypes"_a.none());

  nb::class_<Work>(module, "Work")
      .def("wait", &Work::wait, "timeout"_a = nb::none())
      .def("done", &Work::done)
      .def("notify", &Work::notify, "cookie"_a);

  nb::class_<Group>(module, "Group")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def("selection_table", &Group::selection_table)
      .def("run", &Group::run, "ops"_a, "buffers"_a.none(), "named"_a = false)
      .def("submit", &Group::submit, "ops"_a, "buffers"_a.none(), "named"_a = false)
      .def("join", &Group::join, "last"_a, "buffers"_a, "timeout"_a = nb::none())
      .def("run_array", &Group::run_array, "arrays"_a, "kind"_a, "source"_a, "target"_a.none(),
           "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "timeout"_a)
      .def("submit_array", &Group::submit_array, "arrays"_a, "kind"_a, "source"_a,
           "target"_a.none(), "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "timeout"_a,
           "name"_a = nb::none())
      .def("load", &Group::load, "spec"_a, "first"_a = 0, "timeout"_a = nb::none())
      .def("buckets", &Group::buckets, nb::kw_only(), "parts"_a, "reduce_op"_a, "passes"_a,
           "prescale"_a, "postscale"_a, "codec"_a, "buffers"_a);
  corro::python::bind_buckets(module);

  nb::class_<Engine>(module, "Engine")
      .def(nb::init<std::optional<int>, std::optional<int>, std::optional<std::string>, nb::object,
                    Seconds, Seconds>(),
           nb::kw_only(), "rank"_a = nb::none(), "size"_a = nb::none(), "job"_a = nb::none(),
           "store"_a = nb::none(), "timeout"_a = nb::none(), "join_timeout"_a = nb::none())
      .def("close", &Engine::close)
      .def_prop_ro("closed", &Engine::closed)
      .def_prop_ro("rank", &Engine::rank)
      .def_prop_ro("size", &Engine::size)
      .def_prop_ro("local_rank", &Engine::local_rank)
      .def_prop_ro("local_size", &Engine::local_size)
      .def_prop_ro("node_rank", &Engine::node_rank)
      .def_prop_ro("nodes", &Engine::nodes)
      .def_prop_ro("node_of_ranks", &Engine::node_of_ranks)
      .def_prop_ro("world", &Engine::world)
      .def("group", &Engine::group, "ranks"_a, "name"_a = nb::none())
      .def("set_step", &Engine::set_step, "step"_a)
      .def("longest_wait", &Engine::longest_wait)
      .def("start_timeline", &Engine::start_timeline, "path"_a, "mark_cycles"_a)
      .def("stop_timeline", &Engine::stop_timeline)
      .def("counter", &Engine::counter, "name"_a)
      .def("next_completed", &Engine::next_completed, "timeout"_a = nb::none())
      .def("alloc", &Engine::alloc, "size"_a, nb::sig("def alloc(self, size: int) -> memoryview"));
}
