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
#include <nanobind/stl/pair.h>
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

#include "buckets.h"
#include "corro/corro.h"
#include "engine_ref.h"
#include "epochs.h"
#include "group.h"
#include "plans.h"
#include "signals.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using corro::python::EnginePtr;
using corro::python::EngineRef;
using corro::python::Epochs;
using corro::python::Exit;
using corro::python::Group;
using corro::python::Kept;
using corro::python::nanoseconds;
using corro::python::raise;
using corro::python::Seconds;
using corro::python::Signals;

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

class Engine {
 public:
  Engine(std::optional<int> rank, std::optional<int> size, std::optional<std::string> job,
         nb::object store, const Seconds& timeout, const Seconds& join_timeout,
         const Epochs* epochs) {
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
    options.epochs = epochs == nullptr ? nullptr : epochs->get();
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
  void end_epoch(const std::string& why) {
    corro_engine* engine = ref_->get();
    ref_->checked(
        [&](corro_error* error) { return corro_engine_end_epoch(engine, why.c_str(), error); });
  }
  void set_step(uint64_t step) {
    corro_engine* engine = ref_->get();
    ref_->checked([&](corro_error* error) { return corro_engine_set_step(engine, step, error); });
  }
  /// `of`: 0: not said.
  void log(uint64_t step, const std::vector<std::pair<std::string, double>>& values, uint64_t of) {
    corro_engine* engine = ref_->get();
    std::vector<corro_named_value> named;
    named.reserve(values.size());
    for (const auto& [name, value] : values)
      named.push_back({.name = name.c_str(), .value = value});
    ref_->checked([&](corro_error* error) {
      return corro_engine_log(engine, step, named.data(), named.size(), of, error);
    });
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
    static_cast<void>(ref_->get());
    constexpr int64_t kHour = 3'600'000'000'000;
    const int64_t timeout_ns = nanoseconds(timeout, kHour);
    uint64_t cookie = 0;
    const corro_code code =
        ref_->without_gil([&] { return corro_queue_next(ref_->queue(), &cookie, timeout_ns); });
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

  module.def(
      "cast_codec",
      [](uint8_t dtype) { return reinterpret_cast<uintptr_t>(corro_cast_codec(dtype)); },
      "dtype"_a);

  corro::python::bind_epochs(module);
  corro::python::bind_reports(module);
  corro::python::bind_group(module);
  corro::python::bind_buckets(module);

  nb::class_<Engine>(module, "Engine")
      .def(nb::init<std::optional<int>, std::optional<int>, std::optional<std::string>, nb::object,
                    Seconds, Seconds, const Epochs*>(),
           nb::kw_only(), "rank"_a = nb::none(), "size"_a = nb::none(), "job"_a = nb::none(),
           "store"_a = nb::none(), "timeout"_a = nb::none(), "join_timeout"_a = nb::none(),
           "epochs"_a.none() = nb::none())
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
      .def("end_epoch", &Engine::end_epoch, "why"_a)
      .def("set_step", &Engine::set_step, "step"_a)
      .def("log", &Engine::log, "step"_a, "values"_a, "of"_a)
      .def("longest_wait", &Engine::longest_wait)
      .def("start_timeline", &Engine::start_timeline, "path"_a, "mark_cycles"_a)
      .def("stop_timeline", &Engine::stop_timeline)
      .def("counter", &Engine::counter, "name"_a)
      .def("next_completed", &Engine::next_completed, "timeout"_a = nb::none())
      .def("alloc", &Engine::alloc, "size"_a, nb::sig("def alloc(self, size: int) -> memoryview"));
}
