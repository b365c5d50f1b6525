// Link probe: how fast messages travel between two ranks, and the selection table that all ranks
// agree on because of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/selection.h"
#include "runtime/driver.h"

namespace corro::runtime {

/// The rank that rank 0 measures the link to: the first one on another host, else rank 1. All ranks
/// get the same answer. Requires two hosts' names or more.
[[nodiscard]] int32_t probed_rank(const std::vector<std::string>& hosts);

/// Rounds of one small message, of many, and of a large one between rank 0 and `other`: on those
/// two ranks only. Takes about 20 ms at most, on rank 0's clock, but for a large message that is
/// on its way then. Returns what rank 0 has measured, and there only.
[[nodiscard]] Result<collective::LinkModel> probe_link(Driver& driver, Group& group, int32_t other,
                                                       Duration timeout);

/// Makes rank 0's table that of every rank of the group: one broadcast. Blocks.
[[nodiscard]] Result<collective::SelectionTable> share_selection(
    Driver& driver, Group& group, const collective::SelectionTable& table, Duration timeout);

}  // namespace corro::runtime
