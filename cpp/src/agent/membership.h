// Membership: who takes part in the job, as MEMBERS says to an agent, epoch after epoch.
//
//   An epoch of the job begins when the commander has started the ranks that it adds: MEMBERS lists
//   all of its members, those of other hosts too, each once. The list never changes; who joins or
//   is lost makes a new epoch. The agent begins with the epoch of the first message that it gets.
//
//   older epoch    whatever is of it is over: a message of it is dropped. So a late SIGNAL that was
//                  meant for a process of before does not reach its successor
//   newest epoch   the last one that was announced; before any MEMBERS every process counts as a
//                  member, since nobody has said otherwise
//   newer epoch    the commander is ahead: it starts processes of an epoch before it announces it.
//                  These are looked at when MEMBERS of that epoch comes, not before. Whoever joins is
//                  of kNoEpochYet until a list has it
//
// A member is its uuid, never its rank or its host: ranks are numbered anew in each epoch. A
// process of a member that has a newer incarnation was replaced: it is no member any more, and the
// agent ends it. Without that a process that was given up, but lives, would go on beside the one
// that replaces it, and use its GPU and its files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/messages.h"
#include "base/status.h"

namespace corro::agent {

/// Pure. Loop-confined.
class Membership {
 public:
  /// The epoch of the first message.
  void begin(uint32_t epoch) { epoch_ = epoch; }
  /// The newest one.
  [[nodiscard]] uint32_t epoch() const { return epoch_; }
  /// Whatever is of this epoch is of another time.
  [[nodiscard]] bool is_over(uint32_t epoch) const { return epoch < epoch_; }

  /// Takes the list of an epoch that is not over; the same one once more is nothing new.
  /// ALREADY_EXISTS if there is another one of this epoch, INVALID_ARGUMENT if it is none; then
  /// nothing changes.
  [[nodiscard]] Status announce(uint32_t epoch, const Members& members);

  /// What the list says of this process; null if it is no member, if it belongs to an epoch that is
  /// still to be announced, or if none was.
  [[nodiscard]] const Member* find(const Subject& about) const;
  /// False for a process that is not, or no longer, one of the newest epoch's members. Table servers
  /// are none, and always take part.
  [[nodiscard]] bool admits(const Subject& about) const;
  /// The name of the member's host; "" if it is not known, or the only one.
  [[nodiscard]] std::string host_of(const Subject& about) const;

 private:
  uint32_t epoch_ = 0;
  bool announced_ = false;  ///< There is a list of this epoch, or was one of an older one.
  std::vector<std::string> hosts_;
  std::map<MemberUuid, Member> members_;
};

}  // namespace corro::agent
