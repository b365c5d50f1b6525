// Memory limits as cgroups (v1 and v2) and the machine state them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <string_view>

#include "io/cgroup.h"
#include "io/memory.h"

namespace corro::io {
namespace {

/// Returns a number as cgroup files hold it; nullopt for "max", for v1's "unlimited" (near 2^63)
/// and for anything else.
std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr uint64_t kUnlimited = 1ULL << 60U;
  if (error != std::errc() || end != text.data() + text.size() || value >= kUnlimited)
    return std::nullopt;
  return value;
}

/// Sums the named keys of a file of "key value" lines (memory.stat, /proc/meminfo); 0 for what is
/// missing.
uint64_t sum_of_keys(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  uint64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(0, blank);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    sum += std::strtoull(line.c_str() + blank, nullptr, 10);
  }
  return sum;
}

std::optional<MemoryLimit> limit_at(const Cgroup& cgroup) {
  const auto& [directory, v2] = cgroup;
  const auto limit = read_number(directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(directory + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  // The kernel gives file pages back before it kills anybody; shared memory is counted as
  // anonymous, not here.
  const std::string stat = directory + "/memory.stat";
  const uint64_t reclaimable = v2 ? sum_of_keys(stat, {"active_file", "inactive_file"})
                                  : sum_of_keys(stat, {"total_active_file", "total_inactive_file"});
  return MemoryLimit{"cgroup limit " + directory, *limit, *used - std::min(*used, reclaimable)};
}

std::optional<MemoryLimit> machine_limit(const std::string& meminfo) {
  constexpr uint64_t kKib = 1024;
  const uint64_t total = kKib * sum_of_keys(meminfo, {"MemTotal:", "SwapTotal:"});
  const uint64_t available = kKib * sum_of_keys(meminfo, {"MemAvailable:", "SwapFree:"});
  if (total == 0) return std::nullopt;
  return MemoryLimit{"memory of this machine", total, total - std::min(total, available)};
}

uint64_t room_in(const MemoryLimit& limit) {
  return limit.limit - std::min(limit.limit, limit.used);
}

void keep_tighter(std::optional<MemoryLimit>& kept, std::optional<MemoryLimit> other) {
  if (other && (!kept || room_in(*other) < room_in(*kept))) kept = std::move(other);
}

}  // namespace

std::optional<MemoryLimit> tightest_memory_limit(const MemoryLimitPaths& paths) {
  std::optional<MemoryLimit> tightest = machine_limit(paths.meminfo);
  for (const Cgroup& cgroup : cgroups_of("memory", paths.cgroup))
    keep_tighter(tightest, limit_at(cgroup));
  return tightest;
}

Status check_memory_limit(const std::optional<MemoryLimit>& limit, uint64_t bytes) {
  if (!limit || bytes <= room_in(*limit)) return {};
  return {
      Code::kResourceExhausted,
      fmt::format("shared memory: needs {} MiB more, but the limit is {} MiB with {} MiB in use: "
                  "raise it, or lower the number of ranks or the size of the arena ({})",
                  (bytes + kMib - 1) / kMib, limit->limit / kMib, limit->used / kMib, limit->what)};
}

}  // namespace corro::io
