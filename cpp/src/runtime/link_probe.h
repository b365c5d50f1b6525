// Link probe: how fast messages travel between two ranks, and the selection table that all ranks
// agree on because of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/schedule/selection.h"
#include "runtime/driver.h"

namespace corro::runtime {

/// The ranks that rank 0 measures links to, one for each class; -1 where there is none: the first
/// other one on its host, and the first one on another host. All ranks get the same answer.
struct ProbedRanks {
  int32_t same_host = -1, other_host = -1;
  friend bool operator==(const ProbedRanks&, const ProbedRanks&) = default;
};
[[nodiscard]] ProbedRanks probed_ranks(const std::vector<std::string>& hosts);

/// The least times of the probe's rounds, in microseconds.
struct ProbeTimes {
  static constexpr uint64_t kBurstMessages = 32;
  static constexpr uint64_t kShortBytes = 64U << 10U, kLongBytes = 1U << 20U;
  double round_trip = 0;  ///< A small message and its answer.
  double burst = 0;       ///< kBurstMessages small messages, and an answer.
  double short_bulk = 0;  ///< kShortBytes, and an answer.
  double long_bulk = 0;   ///< kLongBytes, and an answer; 0: not tried, the link is slow.
};
/// The link that takes these times; nothing if no link does: other work got in between. Pure.
[[nodiscard]] std::optional<collective::LinkModel> fit_link(const ProbeTimes& times);

/// One round as rank 0 announces it: so many messages of so many bytes. No messages: the end.
struct ProbeRound {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};
inline constexpr size_t kProbeRoundBytes = 16;
/// INVALID_ARGUMENT for rounds that probe_link() does not announce.
[[nodiscard]] Result<ProbeRound> decode_probe_round(BytesView bytes);

/// On rank 0: rounds of one small message, of many, and of large ones, with rank `other` of the
/// group. About 20 ms, but no fewer than three rounds, each after an announcement. Returns what
/// fit_link() makes of them. Blocks, at most until `deadline`.
[[nodiscard]] Result<std::optional<collective::LinkModel>> probe_link(Driver& driver, Group& group,
                                                                      int32_t other, Time deadline);
/// On rank `other`, until rank 0 has enough.
[[nodiscard]] Status answer_probe(Driver& driver, Group& group, Time deadline);

/// Makes rank 0's table that of every rank of the group: one broadcast. Blocks.
[[nodiscard]] Result<collective::SelectionTable> share_selection(
    Driver& driver, Group& group, const collective::SelectionTable& table, Time deadline);

}  // namespace corro::runtime
