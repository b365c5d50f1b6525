// A Status as the exception of its code, for extensions without libcorro.so.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "base/status.h"

namespace corro::python {

/// Throws what corro.errors.make() makes of the failure. Needs the GIL.
[[noreturn]] inline void raise(const Status& status) {
  const nanobind::object exception =
      nanobind::module_::import_("corro.errors")
          .attr("make")(static_cast<int>(status.code()), status.message(), -1, "", "", false);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nanobind::python_error();
}

/// Returns the value, or throws. Needs the GIL.
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace corro::python
