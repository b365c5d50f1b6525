// Named messages: how the members of a group and its leader talk about named operations, as values
// and as bytes. The layout is in docs/wire.md.
//
//   Bytes bytes = encode(Announcement{.kind = Announcement::Kind::kReady, .ready = {ref}});
//   CORRO_ASSIGN(const Announcement message, decode_announcement(bytes));
//
// A member sends Announcements to the leader. The leader sends Decisions to every member, itself
// included. All members get the same Decisions in the same order.
//
// A group negotiates or follows a plan. Its *mode* counts the changes between the two, so it is
// even while the group negotiates and odd while it follows a plan. ENGAGE and CUT each add one.
// Every message carries a mode, so a message that crosses such a change cannot be mistaken: the
// leader drops an Announcement of an older mode, and its sender says it again where it still
// matters.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "named/fusion.h"

namespace corro::named {

/// An operation as its rank submitted it, without its buffers.
struct NamedEntry {
  std::string name;
  Fusible op;
};
inline constexpr size_t kMaxOperationName = 512;

/// True if name and operation are equal, scales by their bits.
[[nodiscard]] bool same(const NamedEntry& a, const NamedEntry& b);
/// For example "allreduce(f32[100], sum)" or "allreduce(f32[100], sum), prescale 0.5".
[[nodiscard]] std::string describe(const NamedEntry& entry);

/// An entry, or the number under which both sides know it.
struct NamedRef {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  uint32_t cached = kNone;
  NamedEntry entry = {};  ///< Empty if cached.
};

/// Entries by small numbers. Every member and the leader learn the entries of each run in the same
/// order, so numbers mean the same everywhere. A name keeps its number when its entry changes; once
/// full, further names stay unnumbered. Loop-confined.
class NamedCache {
 public:
  static constexpr size_t kCapacity = size_t{1} << 16U;

  /// Adds or replaces; returns the number, or NamedRef::kNone when full.
  uint32_t learn(const NamedEntry& entry);
  /// The number if this very entry is known, else kNone.
  [[nodiscard]] uint32_t find(const NamedEntry& entry) const;
  /// Null if the number is unknown.
  [[nodiscard]] const NamedEntry* entry(uint32_t number) const;
  [[nodiscard]] NamedRef refer(const NamedEntry& entry) const;
  /// The entry behind a reference. INVALID_ARGUMENT for an unknown number.
  [[nodiscard]] Result<NamedEntry> resolve(const NamedRef& ref) const;

 private:
  std::vector<NamedEntry> entries_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

/// Member to leader.
struct Announcement {
  enum class Kind : uint8_t {
    kReady = 0,   ///< `ready` has been submitted.
    kAccept = 1,  ///< The proposed plan `plan` can be followed.
    kRefuse = 2,
    kFrozen = 3,   ///< Starts nothing more of the plan; has started its operations below `started`.
    kWaiting = 4,  ///< `ready` has been submitted long ago: who has not?
    kWithdraw = 5,  ///< `ready` has been submitted and is given up, unless it is decided already.
    kJoin = 6,      ///< Submits nothing more until all have joined.
  };
  Kind kind = Kind::kReady;
  uint32_t mode = 0;  ///< Of the sender.
  uint32_t plan = 0;
  uint64_t started = 0;
  std::vector<NamedRef> ready = {};
};

/// Why a name has failed on every member.
enum class FailCause : uint8_t {
  kDiffers = 0,  ///< Members submitted different operations under it.
  kJoined = 1,   ///< A member has joined, and the operation has no identity.
};
inline constexpr int kFailCauseCount = 2;

/// Leader to every member.
struct Decision {
  enum class Kind : uint8_t {
    kRun = 0,      ///< Run `run`, cut by fuse(run, fusion), each bucket with the next op id of the
                   ///< ordered lane. `absent` members have joined and give nothing.
    kFail = 1,     ///< `name` has failed on every member that submitted it: `text`; `rank`
                   ///< differs from the others, or has joined.
    kStalled = 2,  ///< `name` waits for `missing`, or for its turn if that is empty; to who asked.
    kPropose = 3,  ///< Could everyone follow `segments` as plan `plan`?
    kEngage = 4,   ///< From here on follow plan `plan`, its first operation has id `op` of the
                   ///< planned lane.
    kFreeze = 5,   ///< Someone cannot follow: start nothing more, answer with kFrozen.
    kCut = 6,      ///< The plan is over: every member has started its operations below `op`. Those
                   ///< from there on are taken back where they have started and negotiated. No
                   ///< operation below `resume` starts any more.
    kWithdrawn = 7,  ///< `name` counts as not submitted by `rank`, which had given it up.
    kJoined = 8,     ///< `rank` has joined.
    kOver = 9,  ///< Everyone has joined, `rank` as the last: the next op id of the ordered lane is
                ///< the operation that ends the join.
  };
  Kind kind = Kind::kRun;
  uint32_t mode = 0;  ///< After this decision.
  uint32_t plan = 0;
  uint64_t op = 0;
  uint64_t resume = 0;
  int32_t rank = -1;
  int32_t absent = 0;
  FailCause cause = FailCause::kDiffers;
  FusionOptions fusion = {};
  std::string name = {};
  std::string text = {};
  std::vector<NamedRef> run = {};
  std::vector<int32_t> missing = {};  ///< At most kMostMissing,
  uint32_t missing_more = 0;          ///< and so many more.
  /// Numbers of cached entries. Operations of different segments are never fused.
  std::vector<std::vector<uint32_t>> segments = {};
};

/// No message is larger: its composer adds encoded_size() of each reference to the size of the
/// message without any, and puts the references that do not fit into the next message.
inline constexpr size_t kMaxNamedMessage = size_t{60} << 10U;
inline constexpr size_t kMaxFailureText = 2048;
inline constexpr size_t kMostMissing = 1024;
/// The bytes a reference takes in a message, as its encoder writes it.
[[nodiscard]] size_t encoded_size(const NamedRef& ref);

[[nodiscard]] Bytes encode(const Announcement& message);
[[nodiscard]] Bytes encode(const Decision& message);
/// INVALID_ARGUMENT for bytes that no encoder made. Allocates no more than a small multiple of
/// bytes.size().
[[nodiscard]] Result<Announcement> decode_announcement(BytesView bytes);
[[nodiscard]] Result<Decision> decode_decision(BytesView bytes);

}  // namespace corro::named
