// NamesInFlight: the names of a group's operations that somebody has still to wait for, where each
// may be there once; and NamedWork, an operation that is started under such a name.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine_ref.h"

namespace corro::python {

/// Of printable ASCII alone. What other names may be is the front end's to say.
inline bool is_plain(const nb::str& name) {
  if (PyUnicode_IS_ASCII(name.ptr()) == 0) return false;
  const std::string_view text(name.c_str(), static_cast<size_t>(PyUnicode_GET_LENGTH(name.ptr())));
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

/// Guarded by the GIL.
class NamesInFlight {
 public:
  /// Raises ALREADY_EXISTS, and claims none, if one of them is there already.
  void claim(const nb::list& names) {
    for (const nb::handle name : names) refuse_twice(name);
    for (const nb::handle name : names) add(name);
  }
  void release(const nb::list& names) {
    for (const nb::handle name : names) discard(names_, name);
  }

 private:
  friend class NameClaim;

  void refuse_twice(nb::handle name) const {
    const int there = PySet_Contains(names_.ptr(), name.ptr());
    if (there < 0) throw nb::python_error();
    if (there == 0) return;
    const std::string text = nb::cast<std::string>(name);
    raise(CORRO_ALREADY_EXISTS, ("Requested to run " + text +
                                 " while an operation of this name is in flight: give each "
                                 "its own name, or wait for the first.")
                                    .c_str());
  }
  void add(nb::handle name) {
    if (PySet_Add(names_.ptr(), name.ptr()) != 0) throw nb::python_error();
  }
  static void discard(const nb::object& names, nb::handle name) {
    if (PySet_Discard(names.ptr(), name.ptr()) < 0) PyErr_Clear();
  }

  nb::object names_ = nb::steal(PySet_New(nullptr));
};

/// A name is claimed as long as this lives.
class NameClaim {
 public:
  NameClaim(NamesInFlight& names, const nb::str& name) : names_(names.names_), name_(name) {
    names.refuse_twice(name);
    names.add(name);
  }
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;
  NameClaim(NameClaim&&) = default;
  NameClaim& operator=(NameClaim&&) = delete;
  ~NameClaim() {
    if (name_.is_valid()) NamesInFlight::discard(names_, name_);
  }

 private:
  nb::object names_, name_;
};

/// A work of one operation on arrays, whose name is claimed until somebody has waited for it.
class NamedWork {
 public:
  NamedWork(EnginePtr engine, corro_work* work, nb::object used, nb::object result, NameClaim claim)
      : work_(std::move(engine), work, std::move(used)),
        result_(std::move(result)),
        claim_(std::move(claim)) {}

  /// Returns the result, or raises what the operation failed with. Once.
  nb::object wait() {
    const std::optional<NameClaim> claim = std::exchange(claim_, std::nullopt);
    work_.wait(std::nullopt);
    return std::move(result_);
  }
  [[nodiscard]] bool done() { return work_.done(); }

 private:
  Work work_;
  nb::object result_;
  std::optional<NameClaim> claim_;
};

}  // namespace corro::python
