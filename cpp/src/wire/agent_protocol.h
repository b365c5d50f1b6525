// The messages between a worker and the agent on its host, one per packet of an abstract Unix
// socket (SOCK_SEQPACKET): HELLO (with descriptors) -> WELCOME, then any number of PUT and GET,
// each answered by one REPLY. Bytes: docs/wire.md.
//
// A member of an elastic job has a second connection, which outlives its engines:
//
//   FOLLOW ->         it wants to hear of epochs
//      <- PREPARE     a new epoch comes: it has to leave its engine, at once or after a step
//   READY ->          it has; or it is new in the job, and has none
//      <- COMMIT      the epoch begins, in which it has this rank
//   LEAVE ->          it was asked to end: an epoch without it is to come
//
// A member that follows late hears the last PREPARE or COMMIT that it has missed.
//
// Any rank tells people something by a NOTICE, on a connection of its own: that it has made a
// checkpoint durable, or has loaded a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/bootstrap.h"

namespace corro::wire {

enum class AgentMessageKind : uint8_t {
  kHello = 1,    ///< Worker: `rank`; may carry descriptors (its flight recorder).
  kWelcome = 2,  ///< Agent: `key` is the job, `value` the 32 bytes of the secret.
  kPut = 3,      ///< Worker: stores `value` under `key`.
  kGet = 4,      ///< Worker: asks for `key`; answered once it exists.
  kReply = 5,    ///< Agent: `code` and the value (GET), or the reason as text, to `request`.
  kFollow = 6,   ///< Worker: `key` is its member, of CORRO_MEMBER_UUID.
  kPrepare = 7,  ///< Agent: `request` is the epoch, `value` says why, as text; `code` ABORTED: at
                 ///< once, OK: at the end of a step.
  kReady = 8,    ///< Worker: `request` is the epoch, 0 of one that is new, `value` the steps it has
                 ///< applied (u64).
  kCommit = 9,   ///< Agent: `request` is the epoch, `rank` the member's, `value` the size (u32);
                 ///< `code` CANCELLED: it is the last one, OK: it is not.
  kLeave = 10,   ///< Worker: it was asked to end, and wants to leave at the end of a step.
  kNotice = 11,  ///< Worker: for people. `key` is its member, `request` the kind (notice.h),
                 ///< `value` the step (u64), then the text.
};

struct AgentMessage {
  AgentMessageKind kind = AgentMessageKind::kHello;
  uint32_t request = 0;  ///< Chosen by the worker, repeated in the reply.
  int32_t rank = -1;
  Code code = Code::kOk;
  std::string key;  ///< At most kMaxBootstrapKey bytes.
  Bytes value;      ///< At most kMaxBootstrapValue bytes.
};

inline constexpr size_t kAgentHeaderBytes = 20;
inline constexpr size_t kMaxAgentMessage =
    kAgentHeaderBytes + kMaxBootstrapKey + kMaxBootstrapValue;

/// Of these messages: a rank's corro and its agent's may be of different releases.
inline constexpr uint8_t kAgentMessagesVersion = 2;
/// The version of a whole packet if it is another one; none of what is no packet of any version.
[[nodiscard]] std::optional<int> other_version_of(BytesView packet);
/// FAILED_PRECONDITION: a rank and its agent have different versions.
[[nodiscard]] Status different_versions(int of_rank, int of_agent);

/// Of a connection without packets: how many bytes the packet has that begins so; what a header has
/// where there is not even that much. INVALID_ARGUMENT if it would be too long.
[[nodiscard]] Result<size_t> agent_packet_bytes(BytesView begin);

/// `version`: that of who is to read it. All versions have the same header, HELLO and REPLY, so that
/// one can tell the other that it is a stranger.
[[nodiscard]] Bytes encode_agent_message(const AgentMessage& message,
                                         int version = kAgentMessagesVersion);
/// Reads one whole packet. INVALID_ARGUMENT unless it is exactly what encode_agent_message writes.
[[nodiscard]] Result<AgentMessage> decode_agent_message(BytesView packet);

}  // namespace corro::wire
