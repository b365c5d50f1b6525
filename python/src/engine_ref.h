// What the bindings of the C ABI share: the engine's lifetime, calls without the GIL, works,
// errors, and the end of the interpreter.
#pragma once

#include <nanobind/nanobind.h>
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
#include <string>
#include <thread>
#include <utility>

#include "corro/corro.h"

namespace corro::python {

namespace nb = nanobind;

using Seconds = std::optional<double>;

/// The end of the interpreter. Python 3.11 ends every other thread that asks for the GIL from then
/// on by unwinding its stack, which C++ does not survive (Python 3.14 lets them hang). So no thread
/// may be inside then.
class Exit {
 public:
  /// Counts a thread that is inside: it asks for the GIL before it leaves.
  class Inside {
   public:
    Inside() { inside_.fetch_add(1); }
    ~Inside() { inside_.fetch_sub(1); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  /// Called when all engines are closed, so that threads leave with an error; with the GIL. Waits
  /// for them, but not for ever: who is inside after that never leaves.
  static void begin() {
    const nb::object error_class =
        nb::module_::import_("corro.errors").attr("FailedPreconditionError");
    error_ = error_class("corro cannot be used any more: the interpreter ends").release().ptr();
    thread_ = pthread_self();
    begun_.store(true);
    // Threads come inside with the GIL only. In a forked child they are the parent's.
    const int patience = getpid() == process_ ? kPatience : 0;
    for (int ms = 0; ms < patience && inside_.load() > 0; ++ms) {
      PyThreadState* const thread = PyEval_SaveThread();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      PyEval_RestoreThread(thread);
    }
    over_.store(true);
  }
  [[nodiscard]] static bool begun() { return begun_.load(); }
  /// Raises without running any Python, so no other thread gets the GIL; once begun() is true.
  [[noreturn]] static void raise() {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_)), error_);
    throw nb::python_error();
  }
  /// For a thread that is joined before the interpreter ends.
  static void joins_this_thread() { joined_ = true; }
  /// Whether this thread must not take the GIL any more.
  [[nodiscard]] static bool elsewhere() {
    return over_.load() && !joined_ && pthread_equal(thread_, pthread_self()) == 0;
  }
  /// Without the GIL.
  [[noreturn]] static void await() {
    while (true) pause();
  }

 private:
  static constexpr int kPatience = 1000;  ///< Milliseconds.
  static inline thread_local bool joined_ = false;
  static inline PyObject* error_ = nullptr;
  static inline const pid_t process_ = getpid();
  static inline pthread_t thread_{};
  static inline std::atomic<uint32_t> inside_{0};
  static inline std::atomic<bool> begun_{false};
  static inline std::atomic<bool> over_{false};
};

/// Raises what corro.errors.make says this code is. Needs the GIL.
[[noreturn]] inline void raise(const corro_error& error) {
  if (Exit::begun()) Exit::raise();
  const Exit::Inside inside;  // make() is Python, which hands over the GIL.
  if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Not inside of make().
  const nb::object exception =
      nb::module_::import_("corro.errors")
          .attr("make")(error.code, nb::str(error.message), error.rank, nb::str(error.op),
                        nb::str(error.phase), error.torn != 0);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

[[noreturn]] inline void raise(corro_code code, const char* message) {
  corro_error error{};
  error.code = code;
  error.rank = -1;
  std::strncpy(error.message, message, sizeof error.message - 1);
  raise(error);
}

/// A work on its way, and what keeps its memory alive.
class Flight {
 public:
  /// `used` is anything; dropped once it is known that the work is done.
  Flight(corro_work* started, nb::object used) : work_(started), used_(std::move(used)) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  Flight(Flight&& other) noexcept
      : work_(std::exchange(other.work_, nullptr)), used_(std::move(other.used_)) {}
  Flight& operator=(Flight&&) = delete;
  ~Flight() { corro_work_release(work_); }

  [[nodiscard]] corro_work* work() const { return work_; }
  /// True once the work is done.
  bool drop_if_done() {
    if (work_ != nullptr && corro_work_done(work_) == 0) return false;
    const nb::object dropped = std::move(used_);
    return true;
  }

 private:
  corro_work* work_;  ///< Null once moved from.
  nb::object used_;
};

/// Works in flight that nobody holds any more: the engine still uses their memory. Guarded by the
/// GIL. Dropping that may run Python code, which may start other works.
class Flights {
 public:
  void add(Flight flight) { flights_.push_back(std::move(flight)); }
  /// Drops some of those that are done; whoever starts a work calls it.
  void look() {
    for (size_t i = 0; i < kLooks && !flights_.empty(); ++i) {
      Flight oldest = std::move(flights_.front());
      flights_.pop_front();
      if (!oldest.drop_if_done()) flights_.push_back(std::move(oldest));
    }
  }

  /// The engine is closed, so all are done.
  void clear() {
    for (Flight& flight : std::exchange(flights_, {})) flight.drop_if_done();
  }

 private:
  static constexpr size_t kLooks = 4;  ///< More than one, so that none pile up.
  std::deque<Flight> flights_;         ///< The next to be looked at first.
};

/// The engine's lifetime, shared by all that points into it. Guarded by the GIL, but for what
/// happens without it.
class EngineRef {
 public:
  EngineRef() {
    corro_error error{};
    if (corro_queue_create(&queue_, &error) != CORRO_OK) raise(error);
  }
  EngineRef(const EngineRef&) = delete;
  EngineRef& operator=(const EngineRef&) = delete;
  ~EngineRef() { corro_queue_destroy(queue_); }

  /// Null once it is closed.
  corro_engine* engine = nullptr;
  Flights flights;

  /// Of the works that Python's callbacks wait for; closed with the engine.
  [[nodiscard]] corro_queue* queue() const { return queue_; }

  [[nodiscard]] corro_engine* get() const {
    if (engine == nullptr)
      raise(CORRO_FAILED_PRECONDITION, "corro: this engine was shut down; call corro.init() again");
    return engine;
  }

  /// Calls into the C ABI without the GIL. The engine outlives the call, if it is not closed yet.
  template <typename Call>
  corro_code without_gil(const Call& call) {
    const Exit::Inside inside;
    calls_.fetch_add(1);
    PyThreadState* const thread = PyEval_SaveThread();
    const corro_code code = call();
    if (Exit::elsewhere()) {
      end_call();
      Exit::await();
    }
    PyEval_RestoreThread(thread);
    end_call();
    return code;
  }

  /// The same for a call that fills an error: raises it.
  template <typename Call>
  void checked(const Call& call) {
    corro_error error{};
    error.rank = -1;
    const corro_code code = without_gil([&] { return call(&error); });
    if (code == CORRO_OK) return;
    error.code = code;
    raise(error);
  }

  /// Other threads' calls fail, and are waited for.
  void close() {
    const Exit::Inside inside;
    corro_engine* closing = std::exchange(engine, nullptr);
    if (closing == nullptr) return;
    PyThreadState* const thread = PyEval_SaveThread();
    const bool closed = corro_engine_close(closing) != CORRO_FAILED_PRECONDITION;  // As in a child.
    if (closed) {
      corro_queue_close(queue_);
      for (uint32_t calls = calls_.load(); calls > 0; calls = calls_.load()) calls_.wait(calls);
      corro_engine_destroy(closing);
    }
    if (Exit::elsewhere()) Exit::await();
    PyEval_RestoreThread(thread);
    if (closed) flights.clear();
  }

 private:
  void end_call() {
    if (calls_.fetch_sub(1) == 1) calls_.notify_all();
  }

  corro_queue* queue_ = nullptr;
  std::atomic<uint32_t> calls_{0};  ///< That have not got the GIL back yet.
};
using EnginePtr = std::shared_ptr<EngineRef>;

inline int64_t nanoseconds(const Seconds& timeout, int64_t if_none) {
  if (!timeout) return if_none;
  if (std::isnan(*timeout) || *timeout < 0)
    raise(CORRO_INVALID_ARGUMENT, "timeout must be a number of seconds >= 0");
  return static_cast<int64_t>(std::min(*timeout * 1e9, 9e18));
}

/// Operations started together. Dropping it never blocks.
class Work {
 public:
  Work(EnginePtr engine, corro_work* work, nb::object buffers)
      : engine_(std::move(engine)), flight_(work, std::move(buffers)) {
    engine_->flights.look();
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  Work(Work&&) = default;
  Work& operator=(Work&&) = delete;
  ~Work() {
    if (!flight_.drop_if_done()) engine_->flights.add(std::move(flight_));
  }

  /// Lets Python's handlers of signals run now and then, which may raise.
  void wait(const Seconds& timeout) {
    if (engine_->engine == nullptr && !flight_.drop_if_done())
      raise(CORRO_CANCELLED, "corro was shut down before this operation was waited for");
    const int64_t timeout_ns = nanoseconds(timeout, INT64_MAX);
    int64_t left = timeout_ns;
    while (true) {
      const int64_t slice = std::min(kSlice, left);
      if (wait_for(slice)) return;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      left -= slice;
      if (left == 0) break;
    }
    const std::string time = std::to_string(timeout_ns / 1'000'000);
    raise(CORRO_DEADLINE_EXCEEDED, ("the work is still going after " + time + " ms").c_str());
  }
  [[nodiscard]] bool done() { return flight_.drop_if_done() || engine_->engine == nullptr; }
  void notify(uint64_t cookie) {
    static_cast<void>(engine_->get());
    corro_work_notify(flight_.work(), engine_->queue(), cookie);
  }

 private:
  static constexpr int64_t kSlice = 100'000'000;  ///< Nanoseconds.

  /// False if the work is still going then; raises what it failed with.
  bool wait_for(int64_t timeout_ns) {
    corro_error error;  // Filled in any case.
    corro_code code = CORRO_DEADLINE_EXCEEDED;
    if (!flight_.drop_if_done()) {
      code =
          engine_->without_gil([&] { return corro_work_wait(flight_.work(), timeout_ns, &error); });
    }
    if (code == CORRO_DEADLINE_EXCEEDED) {
      if (!flight_.drop_if_done()) return false;
      code = corro_work_wait(flight_.work(), 0, &error);
    }
    flight_.drop_if_done();
    if (code != CORRO_OK) raise(error);
    return true;
  }

  EnginePtr engine_;
  Flight flight_;
};

}  // namespace corro::python
