// What calls that block for long do about Python's signals and exceptions of callbacks.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "engine_ref.h"

namespace corro::python {

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

/// Lets Python's handlers of signals run while ranks are waited for; keeps what one raises. The end of
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

}  // namespace corro::python
