// corro._planner: the planner for Python, without libcorro.so, an engine or torch. Text of JSON
// goes in, text of JSON comes out; the GIL is released in between. What corro::plan refuses becomes
// the exception of its code (corro.errors.make).
//
//   text = _planner.plan_file(text, "plan.json")
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "plan/plan_file.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using corro::Result;
using corro::Status;

/// Needs the GIL.
[[noreturn]] void raise(const Status& status) {
  const nb::object exception = nb::module_::import_("corro.errors")
                                   .attr("make")(static_cast<int>(status.code()),
                                                 std::string(status.message()), -1, "", "", false);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

/// Runs `work`, which returns a Result<std::string>, without the GIL.
template <typename Work>
std::string without_gil(Work work) {
  Result<std::string> result = [&work] {
    const nb::gil_scoped_release release;
    return work();
  }();
  if (!result.ok()) raise(result.status());
  return *std::move(result);
}

std::string plan_file(const std::string& text, const std::string& name) {
  return without_gil([&text, &name]() -> Result<std::string> {
    CORRO_ASSIGN(const corro::graph::Plan plan, corro::plan::read_plan(text, name));
    return corro::plan::write_plan(plan);
  });
}

}  // namespace

NB_MODULE(_planner, module) {
  module.doc() = "The planner's door: text of JSON in, text of JSON out; use corro.plan().";
  module.def("version", [] { return CORRO_VERSION; }, "Returns corro's version.");
  module.def("plan_file", &plan_file, "text"_a, "name"_a,
             "Reads a plan's file, and returns it as corro writes it.");
}
