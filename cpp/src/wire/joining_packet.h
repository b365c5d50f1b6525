// JoiningPacket: what two ranks tell each other on a connection for joining; and what a rank that
// gives up leaves in the bootstrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/peer_record.h"

namespace corro::wire {

/// A rank, as the ranks that know it tell those that do not.
struct Introduction {
  int32_t rank = -1;
  Bytes record;  ///< An encoded PeerRecord.
  /// How many of the packet's descriptors are this rank's, in the order of the introductions.
  uint8_t descriptors = 0;
};

struct JoiningPacket {
  enum class Kind : uint8_t {
    kRound = 1,  ///< Introductions: a round of them, or a part of it.
    kKnown = 2,  ///< The answer: everything of that round is here.
  };
  Kind kind = Kind::kRound;
  bool of_host = false;  ///< A round among the ranks of one host, not among all.
  uint8_t round = 0;
  std::vector<Introduction> introductions;
};

inline constexpr size_t kJoiningHeaderBytes = 12;
inline constexpr size_t kMostIntroductions = 32;
inline constexpr size_t kMostDescriptorsEach = 2;
inline constexpr size_t kMaxJoiningPacket =
    kJoiningHeaderBytes + kMostIntroductions * (9 + kMaxPeerRecord);

[[nodiscard]] Bytes encode_joining_packet(const JoiningPacket& packet);
/// The size of the whole packet that starts with this header; INVALID_ARGUMENT if it is none.
[[nodiscard]] Result<size_t> joining_packet_bytes(
    std::span<const std::byte, kJoiningHeaderBytes> header);
/// INVALID_ARGUMENT unless it is exactly what encode_joining_packet writes.
[[nodiscard]] Result<JoiningPacket> decode_joining_packet(BytesView bytes);

/// Why a rank gave up joining: its peers see only that it has ended.
struct JoiningFailure {
  Code code = Code::kUnknown;
  int32_t culprit = -1;
  std::string text;
};
inline constexpr size_t kMaxFailureText = 2048;

/// A longer text is cut.
[[nodiscard]] Bytes encode_joining_failure(const JoiningFailure& failure);
/// INVALID_ARGUMENT unless it is exactly what encode_joining_failure writes.
[[nodiscard]] Result<JoiningFailure> decode_joining_failure(BytesView bytes);

}  // namespace corro::wire
