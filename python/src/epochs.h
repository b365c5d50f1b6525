// corro._native.Epochs: corro_epochs_* as a Python object; and what ranks tell people.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "corro/corro.h"
#include "engine_ref.h"
#include "signals.h"

namespace corro::python {

/// What the coordinator says of the membership. Thread-safe.
class Epochs {
 public:
  Epochs();
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;
  ~Epochs() { corro_epochs_destroy(epochs_); }

  [[nodiscard]] corro_epochs* get() const { return epochs_; }
  [[nodiscard]] uint32_t prepared() const { return corro_epochs_prepared(epochs_); }
  [[nodiscard]] std::string why() const;
  void leave() const;
  /// Epoch, rank, size, whether it is the last one. Lets Python's handlers of signals run.
  std::tuple<uint32_t, int, int, bool> next(uint64_t steps, int lost, const Seconds& timeout);

 private:
  corro_epochs* epochs_ = nullptr;
};

void bind_epochs(nb::module_& module);
/// corro_report_*.
void bind_reports(nb::module_& module);

}  // namespace corro::python
