// Measured bandwidths between all hosts: rows in the cluster's file, or a file of numbers.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/json.h"

namespace corro::plan {

inline constexpr size_t kMostMatrixHosts = 4096;
/// What every bandwidth of a cluster has to be.
inline constexpr RealRange kBandwidthRange{1, 1e18};

/// Reads `hosts` rows of as many quantities; what is wrong goes to `reading`. The diagonal may be
/// 0.
[[nodiscard]] std::vector<double> read_matrix_rows(const Json& rows, const Place& place,
                                                   Reading& reading, size_t hosts);
/// The same for a text of a row a line: numbers of bytes/s with commas or blanks between them.
/// INVALID_ARGUMENT "name:line: ...".
[[nodiscard]] Result<std::vector<double>> parse_matrix(std::string_view text, std::string_view name,
                                                       size_t hosts);

}  // namespace corro::plan
