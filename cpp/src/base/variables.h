// The variables of a process's environment, as a value.
#pragma once

#include <map>
#include <string>

namespace corro {

/// Variables by name; read once from the process and passed on as a value.
using Variables = std::map<std::string, std::string>;

/// The environment of this process.
[[nodiscard]] Variables read_variables();

/// Returns the variable's value, or `otherwise` if it is not set.
[[nodiscard]] inline std::string value_of(const Variables& environment, const std::string& name,
                                          const std::string& otherwise = "") {
  const auto found = environment.find(name);
  return found == environment.end() ? otherwise : found->second;
}

}  // namespace corro
