// What `corro doctor -H` finds wrong, each with what to do: of a Health, without I/O.
#pragma once

#include <string>
#include <vector>

#include "launch/health.h"

namespace corro::launch {

enum class FindingKind : uint8_t {
  kNoAnswer,     ///< No agent there.
  kUnreachable,  ///< Over the network, from some or all.
  kSlow,
  kClock,
  kMissing,    ///< Something that ranks need.
  kMemory,     ///< Or shared memory.
  kDifferent,  ///< From other hosts.
};
[[nodiscard]] const char* name_of(FindingKind kind);

struct Finding {
  FindingKind kind;
  std::vector<size_t> hosts;  ///< That it is about.
  std::string what;           ///< One line, with the hosts' names.
  std::string advice;         ///< What to do; one line.
};

/// The worst first; none if all is well.
[[nodiscard]] std::vector<Finding> find_faults(const Health& health);

/// "940 Mbit/s", "23.5 Gbit/s".
[[nodiscard]] std::string format_rate(double bytes_per_second);
/// "48 us", "0.21 ms", "1.5 s"; with a sign if it is negative.
[[nodiscard]] std::string format_time(Duration time);
/// "512 MiB", "31.2 GiB".
[[nodiscard]] std::string format_memory(uint64_t bytes);

}  // namespace corro::launch
