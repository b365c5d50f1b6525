#include "table/service/memory_guard.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::table {
namespace {

/// Of the index, for each row; it is copied while it grows.
constexpr uint64_t kEntryBytes = 64;

uint64_t mib(uint64_t bytes) { return bytes >> 20U; }

}  // namespace

Status MemoryGuard::check(const LocalTable& table, std::span<const uint64_t> keys) {
  if (!table.spec().retention.spill.empty()) return {};
  const uint64_t most = keys.size() * (table.packed_bytes() + kEntryBytes);
  if (most <= unasked_) {
    unasked_ -= most;
    return {};
  }
  const auto limit = limit_();
  if (!limit) return {};
  const uint64_t kept = limit->limit / 16;
  const uint64_t left = limit->limit - std::min(limit->limit, limit->used + kept);
  unasked_ = left / 4;
  if (most <= left) return {};
  const size_t added = table.count_without_rows(keys);
  const uint64_t needed = added * (table.packed_bytes() + kEntryBytes);
  if (added == 0 || needed <= left) return {};
  return {Code::kResourceExhausted,
          fmt::format(
              "table {}: no memory for {} new rows ({} MiB) beside {} rows ({} MiB): {} MiB "
              "of the {} MiB of {} are used, and {} are kept free: give the table budget= "
              "and spill=, let rows go (evict_after=), or add servers on other hosts",
              table.spec().name, added, mib(needed), table.stats().rows, mib(table.stats().bytes),
              mib(limit->used), mib(limit->limit), limit->what, mib(kept))};
}

}  // namespace corro::table
