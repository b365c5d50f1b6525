#include "group.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

namespace corro::python {

using namespace nb::literals;

void bind_group(nb::module_& module) {
  nb::class_<LateOutput>(module, "LateOutput")
      .def(nb::init<uint64_t, size_t, size_t>(), "row"_a, "size"_a, "ranks"_a)
      .def_prop_ro("rows", &LateOutput::rows)
      .def("memory", &LateOutput::memory, nb::sig("def memory(self) -> memoryview"));

  nb::class_<Op>(module, "Op")
      .def(nb::init<uint8_t, uint8_t, uint8_t, int, uint32_t, uintptr_t, uintptr_t, uint64_t,
                    std::optional<std::vector<uint64_t>>, std::optional<std::vector<uint64_t>>,
                    double, double, Seconds, std::optional<std::string>,
                    std::optional<std::vector<uint64_t>>, uintptr_t, std::optional<std::string>,
                    LateOutput*>(),
           nb::kw_only(), "kind"_a, "dtype"_a = static_cast<int>(CORRO_U8),
           "reduce_op"_a = static_cast<int>(CORRO_SUM), "root"_a = 0, "tag"_a = 0, "input"_a = 0,
           "output"_a = 0, "count"_a = 0, "counts"_a = nb::none(), "send_counts"_a = nb::none(),
           "prescale"_a = 1.0, "postscale"_a = 1.0, "timeout"_a = nb::none(), "name"_a = nb::none(),
           "dims"_a = nb::none(), "codec"_a = 0, "element"_a = nb::none(), "late"_a = nb::none());

  nb::class_<Arrays>(module, "Arrays")
      .def(nb::init<nb::object, nb::object, nb::object>(), "type"_a, "empty_like"_a,
           "dtypes"_a.none());

  nb::class_<Work>(module, "Work")
      .def("wait", &Work::wait, "timeout"_a = nb::none())
      .def("done", &Work::done)
      .def("notify", &Work::notify, "cookie"_a);

  nb::class_<NamedWork>(module, "NamedWork")
      .def("wait", &NamedWork::wait)
      .def("done", &NamedWork::done);

  nb::class_<Group>(module, "Group")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def("selection_table", &Group::selection_table)
      .def("run", &Group::run, "ops"_a, "buffers"_a.none(), "named"_a = false)
      .def("submit", &Group::submit, "ops"_a, "buffers"_a.none(), "named"_a = false)
      .def("join", &Group::join, "last"_a, "buffers"_a, "timeout"_a = nb::none())
      .def("run_array", &Group::run_array, "arrays"_a, "kind"_a, "source"_a.none(),
           "target"_a.none(), "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "timeout"_a)
      .def("submit_array", &Group::submit_array, "arrays"_a, "kind"_a, "source"_a.none(),
           "target"_a.none(), "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "timeout"_a,
           "name"_a = nb::none())
      .def("run_named", &Group::run_named, "arrays"_a, "kind"_a, "source"_a.none(),
           "target"_a.none(), "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "name"_a)
      .def("start_named", &Group::start_named, "arrays"_a, "kind"_a, "source"_a.none(),
           "target"_a.none(), "reduce_op"_a, "root"_a, "prescale"_a, "postscale"_a, "name"_a)
      .def("number", &Group::number, "number"_a)
      .def("claim", &Group::claim, "names"_a)
      .def("release", &Group::release, "names"_a)
      .def("load", &Group::load, "spec"_a, "first"_a = 0, "timeout"_a = nb::none(),
           "memory"_a = nb::list())
      .def("buckets", &Group::buckets, nb::kw_only(), "parts"_a, "reduce_op"_a, "passes"_a,
           "prescale"_a, "postscale"_a, "codec"_a, "buffers"_a);
}

}  // namespace corro::python
