#include "coord/policy.h"

#include <algorithm>

namespace corro::coord {

Policy standard_policy(const PolicyOptions& options) {
  const auto quarantine = [options](const Failure& failure) -> Wait {
    constexpr int kMostDoublings = 20;
    if (failure.failures < 2) return {};
    const int doublings = std::min(failure.failures - 2, kMostDoublings);
    return {.span = std::min(options.back_off * (int64_t{1} << doublings), options.most_back_off)};
  };
  return {.replace = [options](const Loss& /*loss*/) -> Wait { return {options.replacement}; },
          .gather = [options](const Growth& /*growth*/) -> Wait { return {options.gather}; },
          .quarantine = quarantine};
}

}  // namespace corro::coord
