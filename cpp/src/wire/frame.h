// Frames: what travels on a data connection after the handshake. Byte layout: docs/wire.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/lane_key.h"
#include "base/shortened.h"
#include "base/signature_bits.h"

namespace corro::wire {

enum class ControlKind : uint8_t {
  kGoodbye = 1,  ///< The sender closes in an orderly way; end of stream after it is no failure.
  kAbort = 2,   ///< The group is dead: world rank `rank` was lost while in `op`; `text` says how it
                ///< was noticed.
  kCancel = 3,  ///< Operation `op` of the lane failed here with `code`; everyone still inside it
                ///< fails with `text`.
  kPause = 4,   ///< Flow control, used by Endpoint: hold back operations >= op of the lane.
  kResume = 5,  ///< Flow control, used by Endpoint.
  kReady = 6,   ///< Named operations: a member's announcement to its group's leader (`text`).
  kOrder = 7,   ///< Named operations: the leader's decision, to every other member (`text`).
  kWaiting = 8,   ///< Operation `op` of the lane waits for group rank `rank` here, and for long.
  kVote = 9,      ///< Closing round, to who decides: `op` is made here, with this signature.
  kCommit = 10,   ///< Closing round: `op` has succeeded, on every rank.
  kSettled = 11,  ///< Closing round: what has not been committed by now has failed on every rank.
  kFree = 12,     ///< Plans: a slot is free for transfer `op` of the channel that the lane names.
  kStop = 13,     ///< Plans: the plan whose key the lane is has stopped, with `code` and `text`.
  kMembers = 14,  ///< World rank `rank` made the lane's group, which has a name, of these (`text`).
  kTimeline = 15,  ///< What a rank has noted, to rank 0 (`text`), or rank 0 has taken it.
};

/// A small message about the connection or an operation.
struct Control {
  ControlKind kind = ControlKind::kGoodbye;
  uint8_t code = 0;  ///< A corro::Code.
  LaneKey lane = {};
  int32_t rank = -1;
  uint64_t op = 0;
  std::string text = {};         ///< At most kMaxControlText bytes.
  SignatureBits signature = {};  ///< Of a vote alone.
};
inline constexpr uint32_t kMaxControlText = 64U << 10U;
inline constexpr uint32_t kMaxReason = 16U << 10U;

/// A text for people as it travels: its first kMaxReason bytes, "..." where there were more. A text
/// that a peer decodes is never cut: its composer keeps it below kMaxControlText.
[[nodiscard]] inline std::string reason_text(std::string_view text) {
  return shortened(text, kMaxReason);
}

}  // namespace corro::wire
