// MemoryGuard: refuses new rows before the system has no memory for them, and would end the server
// with all that it keeps.
//
// It asks the system how much memory is left (io/memory.h: of the tightest control group, or of the
// machine) whenever pushes may have taken a quarter of what was left last time. A sixteenth of the
// limit is kept free, for messages and for other processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/status.h"
#include "io/memory.h"
#include "table/local_table.h"

namespace corro::table {

/// Loop-confined. Of all tables of a server.
class MemoryGuard {
 public:
  using Limit = std::function<std::optional<io::MemoryLimit>()>;
  /// None: nothing is known, and nothing refused.
  explicit MemoryGuard(Limit limit) : limit_(std::move(limit)) {}

  /// Before a push of these keys. RESOURCE_EXHAUSTED in one line if some of them have no row, and
  /// memory is short. Tables with a `spill` keep to their own budget, and are not asked.
  [[nodiscard]] Status check(const LocalTable& table, std::span<const uint64_t> keys);

 private:
  Limit limit_;
  uint64_t unasked_ = 0;  ///< Bytes that pushes may take before the limit is asked for again.
};

}  // namespace corro::table
