// Reads a Python command line: which script or module it would run.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace corro::launch {

struct PythonTarget {
  std::string name;
  bool module = false;  ///< -m name; else a file, a directory or an archive.
};

/// True for "python", "python3", "/usr/bin/python3.11".
[[nodiscard]] bool is_python(const std::string& program);

/// What `python arguments` would run, the interpreter first. Nothing if it is neither a file nor a
/// module (-c, standard input, --help) or if there is an option that is not known here. Pure.
[[nodiscard]] std::optional<PythonTarget> python_target(const std::vector<std::string>& arguments);

}  // namespace corro::launch
