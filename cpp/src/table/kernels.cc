#include "table/kernels.h"

#include <array>

#include "table/table_kernels_sets.h"

namespace corro::table {
namespace {

/// Three places for the tables, filled from the plainest on.
struct Available {
  std::array<const Kernels*, 3> tables{};
  size_t count = 0;

  void add(const Kernels& kernels) { tables[count++] = &kernels; }
};

Available detect() {
  Available available;
  available.add(baseline_kernels());
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) available.add(avx2_kernels());
  if (avx2 && avx512) available.add(avx512_kernels());
#endif
  return available;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const Available kAvailable = detect();
  return {kAvailable.tables.data(), kAvailable.count};
}

}  // namespace corro::table
