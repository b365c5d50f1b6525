// corro._tables: tables for Python, without an engine or a framework. No logic: convert, release the
// GIL, raise. Arrays are addresses, which the caller keeps alive; dtypes are _native's numbers.
//
//   tables = _tables.served(60.0)   # or _tables.local()
//   number = tables.open("users", 16, F32, 0, (0, 0.01, ...), (0, 0.0, 0.0), (0, 0, 0, ""), 1, 0, 0)
//   tables.pull(number, ids.ctypes.data, len(ids), values.ctypes.data)
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/env.h"
#include "checkpoint/reader.h"
#include "raised.h"
#include "table/service/embedded_server.h"
#include "table/service/server_search.h"
#include "table/service/tables.h"
#include "wire/server_bootstrap.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

namespace table = corro::table;
using corro::Code;
using corro::Result;
using corro::Status;
using corro::python::raise;
using corro::python::value_or_raise;

/// Kind, lr, momentum, beta1, beta2, epsilon, initial_accumulator, l1, l2, beta.
using GivenOptimizer =
    std::tuple<int, float, float, float, float, float, float, float, float, float>;
/// Kind, low, high.
using GivenInitial = std::tuple<int, float, float>;
/// least_pushes, idle_steps, most_bytes, spill.
using GivenRetention = std::tuple<uint32_t, uint32_t, uint64_t, std::string>;

template <typename Enum>
Enum enum_of(int number, int count, const char* what) {
  if (number < 0 || number >= count)
    raise(Status(Code::kInvalidArgument, std::string(what) + " is none of corro's"));
  return static_cast<Enum>(number);
}

table::Optimizer optimizer_of(const GivenOptimizer& given) {
  table::Optimizer made;
  int kind = 0;
  std::tie(kind, made.lr, made.momentum, made.beta1, made.beta2, made.epsilon,
           made.initial_accumulator, made.l1, made.l2, made.beta) = given;
  made.kind = enum_of<table::OptimizerKind>(kind, table::kOptimizerKindCount, "optimizer");
  return made;
}

table::Initial initial_of(const GivenInitial& given) {
  const auto& [kind, low, high] = given;
  return {enum_of<table::InitialKind>(kind, table::kInitialKindCount, "initial"), low, high};
}

class Tables {
 public:
  explicit Tables(std::unique_ptr<table::Tables> tables) : tables_(std::move(tables)) {}
  /// In a forked child nothing can be done with them: their threads are the parent's.
  ~Tables() {
    if (getpid() == process_) return;
    (void)tables_.release();
    (void)server_.release();
  }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  uint32_t open(std::string name, uint32_t dim, int dtype, uint64_t seed,
                const GivenOptimizer& optimizer, const GivenInitial& initial,
                const GivenRetention& retention, uint32_t replicas, int mode, uint32_t staleness) {
    const auto& [least_pushes, idle_steps, most_bytes, spill] = retention;
    const table::TableSpec spec{.name = std::move(name),
                                .dim = dim,
                                .dtype = enum_of<corro::DType>(dtype, corro::kDTypeCount, "dtype"),
                                .seed = seed,
                                .optimizer = optimizer_of(optimizer),
                                .initial = initial_of(initial),
                                .retention = {least_pushes, idle_steps, most_bytes, spill},
                                .mode = enum_of<table::Mode>(mode, table::kModeCount, "mode"),
                                .staleness = staleness};
    table::TableNumber number = 0;
    run([&]() -> Status {
      CORRO_ASSIGN(number, tables_->open(spec, replicas));
      dims_.resize(std::max<size_t>(dims_.size(), number + 1), dim);
      return {};
    });
    return number;
  }

  void pull(uint32_t number, uintptr_t ids, size_t count, uintptr_t values) {
    run([&] {
      return tables_->pull(checked(number), span_at<const uint64_t>(ids, count),
                           span_at<float>(values, count * dims_[number]));
    });
  }

  void prefetch(uint32_t number, uintptr_t ids, size_t count, size_t most) {
    run([&] {
      return tables_->prefetch(checked(number), span_at<const uint64_t>(ids, count), most);
    });
  }

  void push(uint32_t number, uintptr_t ids, size_t count, uintptr_t gradients) {
    run([&] {
      return tables_->push(checked(number), span_at<const uint64_t>(ids, count),
                           span_at<const float>(gradients, count * dims_[number]));
    });
  }

  void wait(uint32_t number) {
    run([&] { return tables_->wait(checked(number)); });
  }

  void set_lr(uint32_t number, float lr) {
    run([&] { return tables_->set_lr(checked(number), lr); });
  }

  void save(uint32_t number, const std::string& folder, size_t keep, size_t full_every) {
    run([&] {
      return tables_->save(checked(number), folder, {.keep = keep, .full_every = full_every});
    });
  }
  std::optional<uint64_t> wait_for_save(uint32_t number) {
    std::optional<uint64_t> step;
    run([&]() -> Status {
      CORRO_ASSIGN(step, tables_->wait_for_save(checked(number)));
      return {};
    });
    return step;
  }
  void save_into(uint32_t number, const std::string& folder, uint64_t step, uint64_t attempt,
                 uint32_t place) {
    run([&] { return tables_->save_into(checked(number), {folder, step, attempt, place}); });
  }
  std::optional<uint32_t> parts_written(uint32_t number, uint64_t attempt) {
    std::optional<uint32_t> parts;
    run([&]() -> Status {
      CORRO_ASSIGN(parts, tables_->parts_written(checked(number), attempt));
      return {};
    });
    return parts;
  }
  uint64_t load(uint32_t number, const std::string& folder, uint64_t step, bool weights_only) {
    uint64_t steps = 0;
    run([&]() -> Status {
      CORRO_ASSIGN(steps, tables_->load(checked(number), folder, step, weights_only));
      return {};
    });
    return steps;
  }
  void adopt(uint32_t number) {
    run([&] { return tables_->adopt(checked(number)); });
  }
  void adopt_steps(uint32_t number, uint64_t steps) {
    run([&]() -> Status {
      tables_->adopt_steps(checked(number), steps);
      return {};
    });
  }

  uint64_t steps(uint32_t number) {
    uint64_t steps = 0;
    run([&]() -> Status {
      steps = tables_->steps(checked(number));
      return {};
    });
    return steps;
  }
  uint32_t copies(uint32_t number) {
    uint32_t copies = 0;
    run([&]() -> Status {
      copies = tables_->copies(checked(number));
      return {};
    });
    return copies;
  }

  /// This process keeps rows of the job.
  [[nodiscard]] bool serves() const { return server_ != nullptr; }
  /// Other ranks may need the rows that are here: waits until none does.
  void leave() {
    if (server_ == nullptr) return;
    run([&] { return server_->leave(); });
    server_.reset();
  }

  /// Once, for one that was made with no tables. `server`: that of this process, or null.
  void serve(std::unique_ptr<table::EmbeddedServer> server, const table::ServedOptions& options) {
    server_ = std::move(server);
    tables_ = table::served_tables(options);
  }
  void raise_raised() {
    if (raised_) throw nb::python_error(*std::exchange(raised_, std::nullopt));
  }

  /// Asked while a call waits: whether a handler of a signal has raised.
  bool interrupted() {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return false;
    raised_.emplace();
    return true;
  }

 private:
  template <typename T>
  static std::span<T> span_at(uintptr_t address, size_t count) {
    return {reinterpret_cast<T*>(address), count};
  }

  [[nodiscard]] table::TableNumber checked(uint32_t number) const {
    CORRO_CHECK(number < dims_.size(), number);
    return static_cast<table::TableNumber>(number);
  }

  /// Without the GIL, and not in a forked child, where connections are the parent's.
  template <typename Call>
  void run(const Call& call) {
    if (getpid() != process_)
      raise(Status(Code::kFailedPrecondition,
                   "corro.table: this process was forked; tables are the parent's"));
    raised_.reset();
    const Status status = [&] {
      const nb::gil_scoped_release release;
      return call();
    }();
    raise_raised();
    if (!status.ok()) raise(status);
  }

  std::unique_ptr<table::EmbeddedServer> server_;  ///< Null: the rank is none.
  std::unique_ptr<table::Tables> tables_;
  std::vector<uint32_t> dims_;  ///< By number.
  std::optional<nb::python_error> raised_;
  const pid_t process_ = getpid();
};

/// The steps of the snapshots in a folder, newest first.
std::vector<uint64_t> snapshots(const std::string& folder) {
  auto steps = corro::checkpoint::steps_in(folder);
  if (steps.status().code() == Code::kNotFound) return {};
  return value_or_raise(std::move(steps));
}

std::unique_ptr<Tables> local() { return std::make_unique<Tables>(table::local_tables()); }

/// Tables on a job's servers, one of which may be this process.
struct Served {
  std::unique_ptr<table::EmbeddedServer> server;  ///< Null: it is none.
  table::ServedOptions options;
};

/// The server of a call that did not find those of other ranks in time: the next call goes on with it,
/// since others may have read where it is.
std::unique_ptr<table::EmbeddedServer> kept_server;  // NOLINT: with the caller's lock.

/// Reads from the environment which rank of which job this is.
Result<Served> serve_and_find(double seconds, const std::function<bool()>& asked) {
  CORRO_ASSIGN(const corro::Environment environment, corro::read_environment());
  Served served;
  table::ServedOptions& options = served.options;
  options.rank = static_cast<uint32_t>(environment.rank.value_or(0));
  options.ranks = static_cast<uint32_t>(environment.size.value_or(1));
  options.interrupted = asked;
  options.patience =
      std::chrono::duration_cast<corro::Duration>(std::chrono::duration<double>(seconds));
  if (environment.ranks_serve) {
    served.server = std::move(kept_server);
    if (served.server == nullptr) {
      CORRO_ASSIGN(served.server,
                   table::EmbeddedServer::start(environment, options.patience, asked));
    }
  }
  const auto found = corro::wire::find_servers(environment, options.patience, asked);
  if (!found.ok()) {
    kept_server = std::move(served.server);
    return found.status();
  }
  const corro::wire::JobServers& servers = *found;
  options.job = servers.job;
  options.secret = servers.secret;
  for (const std::string& address : servers.addresses) {
    CORRO_ASSIGN(const auto parsed, corro::io::SocketAddress::parse(address));
    options.servers.push_back(parsed);
  }
  // Shared by the copies of the function.
  const auto search = std::make_shared<table::ServerSearch>(environment.agent);
  options.find_server = [search](uint32_t server) { return search->find(server); };
  return served;
}

std::unique_ptr<Tables> served(double seconds) {
  auto made = std::make_unique<Tables>(nullptr);
  Tables* const tables = made.get();
  auto found = [&] {
    const nb::gil_scoped_release release;
    return serve_and_find(seconds, [tables] { return tables->interrupted(); });
  }();
  tables->raise_raised();
  Served served = value_or_raise(std::move(found));
  tables->serve(std::move(served.server), served.options);
  return made;
}

}  // namespace

NB_MODULE(_tables, module) {
  nb::class_<Tables>(module, "Tables")
      .def("open", &Tables::open, "name"_a, "dim"_a, "dtype"_a, "seed"_a, "optimizer"_a,
           "initial"_a, "retention"_a, "replicas"_a, "mode"_a, "staleness"_a)
      .def("pull", &Tables::pull, "table"_a, "ids"_a, "count"_a, "values"_a)
      .def("prefetch", &Tables::prefetch, "table"_a, "ids"_a, "count"_a, "most"_a)
      .def("wait", &Tables::wait, "table"_a)
      .def("push", &Tables::push, "table"_a, "ids"_a, "count"_a, "gradients"_a)
      .def("save", &Tables::save, "table"_a, "folder"_a, "keep"_a, "full_every"_a)
      .def("wait_for_save", &Tables::wait_for_save, "table"_a)
      .def("save_into", &Tables::save_into, "table"_a, "folder"_a, "step"_a, "attempt"_a, "place"_a)
      .def("parts_written", &Tables::parts_written, "table"_a, "attempt"_a)
      .def("load", &Tables::load, "table"_a, "folder"_a, "step"_a, "weights_only"_a)
      .def("adopt", &Tables::adopt, "table"_a)
      .def("adopt_steps", &Tables::adopt_steps, "table"_a, "steps"_a)
      .def("set_lr", &Tables::set_lr, "table"_a, "lr"_a)
      .def("steps", &Tables::steps, "table"_a)
      .def("copies", &Tables::copies, "table"_a)
      .def_prop_ro("serves", &Tables::serves)
      .def("leave", &Tables::leave);
  module.def("snapshots", &snapshots, "folder"_a);
  module.def("local", &local);
  module.def("served", &served, "timeout"_a);
}
