#include "epochs.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

using namespace nanobind::literals;

namespace corro::python {
namespace {

template <typename Call>
corro_code without_gil(const Call& call) {
  const Exit::Inside inside;
  PyThreadState* const thread = PyEval_SaveThread();
  const corro_code code = call();
  if (Exit::elsewhere()) Exit::await();
  PyEval_RestoreThread(thread);
  return code;
}

template <typename Call>
void checked_without_gil(const Call& call) {
  corro_error error{};
  error.rank = -1;
  if (without_gil([&] { return call(error); }) != CORRO_OK) raise(error);
}

}  // namespace

Epochs::Epochs() {
  corro_error error{};
  error.rank = -1;
  if (corro_epochs_create(&epochs_, &error) != CORRO_OK) raise(error);
}

std::string Epochs::why() const {
  std::string text(corro_epochs_why(epochs_, nullptr, 0), '\0');
  corro_epochs_why(epochs_, text.data(), text.size() + 1);
  return text;
}

void Epochs::leave() const {
  corro_error error{};
  error.rank = -1;
  if (corro_epochs_leave(epochs_, &error) != CORRO_OK) raise(error);
}

std::tuple<uint32_t, int, int, bool> Epochs::next(uint64_t steps, int lost,
                                                  const Seconds& timeout) {
  const int64_t timeout_ns = nanoseconds(timeout, -1);
  Signals signals;
  corro_epoch next{};
  next.struct_size = sizeof next;
  corro_error error{};
  error.rank = -1;
  const corro_code code = without_gil([&] {
    return corro_epochs_next(epochs_, steps, lost, timeout_ns, &Signals::check, &signals, &next,
                             &error);
  });
  if (code == CORRO_OK) return {next.epoch, next.rank, next.size, next.last != 0};
  signals.rethrow();
  raise(error);
}

void bind_reports(nb::module_& module) {
  module.def(
      "report_checkpoint",
      [](uint64_t step, const std::string& path) {
        checked_without_gil([&](corro_error& error) {
          return corro_report_checkpoint(step, path.c_str(), &error);
        });
      },
      "step"_a, "path"_a);
  module.def(
      "report_plan",
      [](const std::string& name) {
        checked_without_gil(
            [&](corro_error& error) { return corro_report_plan(name.c_str(), &error); });
      },
      "name"_a);
  module.def(
      "report_training",
      [](uint64_t step, const std::string& text) {
        checked_without_gil(
            [&](corro_error& error) { return corro_report_training(step, text.c_str(), &error); });
      },
      "step"_a, "text"_a);
  module.def(
      "report_decisions",
      [](const std::string& json) {
        checked_without_gil(
            [&](corro_error& error) { return corro_report_decisions(json.c_str(), &error); });
      },
      "json"_a);
}

void bind_epochs(nb::module_& module) {
  nb::class_<Epochs>(module, "Epochs")
      .def(nb::init<>())
      .def_prop_ro("prepared", &Epochs::prepared)
      .def_prop_ro("why", &Epochs::why)
      .def("leave", &Epochs::leave)
      .def("next", &Epochs::next, "steps"_a, "lost"_a = -1, "timeout"_a = nb::none());
}

}  // namespace corro::python
