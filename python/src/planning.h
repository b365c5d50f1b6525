// What corro._planner needs to make a plan: a request out of Python's options, and policies that
// are Python functions.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/model/model_file.h"
#include "plan/search/planner.h"

namespace corro::python {

namespace nb = nanobind;

struct Options {
  plan::Request request = {};     ///< Model and cluster are left empty.
  plan::ModelOptions model = {};  ///< What the model is to be read with.
};

/// Reads a request's options, JSON text that corro/planner.py writes. INVALID_ARGUMENT
/// "plan: pins.tensor: what is wrong".
[[nodiscard]] Result<Options> read_options(std::string_view text);

/// Policies in Python. Each function gets the fields of its question as a dict, and returns a list
/// of integers. What one raises ends the plan and is raised again. Externally synchronized: one
/// plan at a time.
class PythonPolicies {
 public:
  /// `listed`: of (kind, name, function); kinds are "cut", "schedule" and "placement". Needs the
  /// GIL, as the destructor does.
  explicit PythonPolicies(const nb::list& listed);
  PythonPolicies(const PythonPolicies&) = delete;
  PythonPolicies& operator=(const PythonPolicies&) = delete;
  PythonPolicies(PythonPolicies&&) = delete;
  PythonPolicies& operator=(PythonPolicies&&) = delete;
  ~PythonPolicies() = default;

  [[nodiscard]] const plan::Policies& native() const { return native_; }
  /// Raises what a function raised first, if one did. Needs the GIL.
  void rethrow();

 private:
  template <typename Fill>
  std::vector<uint32_t> ask(size_t number, Fill fill);

  std::vector<nb::object> functions_;
  plan::Policies native_;
  std::optional<nb::python_error> raised_;
};

}  // namespace corro::python
