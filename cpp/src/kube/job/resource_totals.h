// What pods ask for, added up: "500m" of cpu and "2Gi" of memory, times the number of pods.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// A quantity in billionths. Wide enough for 10000 pods of an exabyte.
using Billionths = __int128;

/// Reads "2", "0.5", "500m", "4Gi", "1e3". Nothing for any other text, for less than nothing, and
/// for more than an exbi.
[[nodiscard]] std::optional<Billionths> parse_amount(std::string_view text);

/// The shortest that is exact: "2", "1500m", "7n".
[[nodiscard]] std::string amount_text(Billionths amount);

/// Sums of what containers request; of a resource that is only limited, the limit. Init containers
/// and what is no quantity do not count.
class ResourceTotals {
 public:
  void add(const Json& pod_template, int pods);
  /// {"cpu": "1500m", ...}
  [[nodiscard]] Json to_json() const;

 private:
  std::map<std::string, Billionths> totals_;
};

}  // namespace corro::kube
