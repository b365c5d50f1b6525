// The command line of `corro plan partition`, without the program around it.
//
//   CORRO_ASSIGN(const auto request, parse_partition_arguments(arguments));  // After "partition".
//   const std::string text = ...;                                            // Of request.file.
//   CORRO_ASSIGN(const auto instance, read_instance(text, request.file));
//   CORRO_ASSIGN(const auto result, solve(instance, request.options));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/partition/partition.h"

namespace corro::plan {

inline constexpr std::string_view kPartitionUsage =
    "corro plan partition FILE [--devices K] [--micro-batches N] [--memory BYTES] "
    "[--bandwidth BYTES_PER_S]";

struct PartitionRequest {
  std::string file;
  PartitionOptions options = {};
};

/// Reads the arguments that follow "partition"; both "--devices 8" and "--devices=8".
/// INVALID_ARGUMENT with a line that names the argument. Whether a value is possible is for solve()
/// to say.
[[nodiscard]] Result<PartitionRequest> parse_partition_arguments(
    std::span<const std::string> arguments);

}  // namespace corro::plan
