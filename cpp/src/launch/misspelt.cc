#include "launch/misspelt.h"

#include <fmt/format.h>

#include "base/nearest_name.h"

namespace corro::launch {

std::vector<std::string> find_misspelt(const Variables& environment,
                                       const std::set<std::string>& known) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("CORRO_") || known.contains(name)) continue;
    const std::string nearest = nearest_name(name, known);
    if (nearest.empty()) continue;
    lines.push_back(
        fmt::format("{} is set, but corro does not know it: did you mean {}?", name, nearest));
  }
  return lines;
}

}  // namespace corro::launch
