#include "plan/cluster/host_names.h"

#include <iterator>

#include <fmt/format.h>

namespace corro::plan {

std::string HostNames::add(const HostGroup& group) {
  std::string stem = group.name;
  uint64_t begin = group.first;
  if (group.count == 1) {
    const size_t letters = group.name.find_last_not_of("0123456789") + 1;
    const std::string digits = group.name.substr(letters);
    const bool is_number =
        !digits.empty() && digits.size() <= 18 && (digits.front() != '0' || digits.size() == 1);
    if (!is_number) return others_.insert(group.name).second ? "" : group.name;
    stem.resize(letters);
    begin = std::stoull(digits);
  }
  const uint64_t end = begin + group.count;
  Ranges& ranges = numbered_[stem];
  const auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first < end) return fmt::format("{}{}", stem, next->first);
  if (next != ranges.begin() && std::prev(next)->second > begin) {
    return fmt::format("{}{}", stem, begin);
  }
  ranges.emplace_hint(next, begin, end);
  return "";
}

}  // namespace corro::plan
