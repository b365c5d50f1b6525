// Roster: who takes part in a job, epoch after epoch. This is the one place that decides it.
//
// A job begins in epoch 0 with all its members. Its epoch is *settled* until a member ends before
// its work is done. Then the epoch is *changing*:
//
//   Prepare    goes to all members. Each of them leaves its engine, and says Ready.
//   Commit     goes to all members once all that are left are ready. The new epoch has begun, and
//              the roster is settled again. Ranks are numbered anew, in the old order.
//
// A member that ends while the epoch changes starts the change once more, under the next number.
// So nobody waits for it, and no two epochs have one number. A member that is not ready in time, or
// that is frozen, is fenced: it counts as ended, and whoever has it kills it. A frozen one without
// which too few would be left is waited for: it may come back.
//
// A member that ends well has done its work. It does not change the epoch, and it counts for the
// least number of members. With fewer than that the job stops.
//
// decide() has no clock and no I/O. Its caller reports what has happened, and carries out what was
// decided, in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace corro::coord {

/// Names a process of the job for as long as the job lasts, whatever its rank is in an epoch.
using MemberUuid = std::array<std::byte, 16>;

struct Options {
  int least = 1;                                  ///< Members; with fewer the job stops.
  Duration patience = std::chrono::seconds(600);  ///< For a member to be ready.
};

struct Member {
  MemberUuid uuid{};
  bool ready = false;  ///< For the epoch that is prepared.
};

/// Plain data: a copy is a snapshot.
struct State {
  uint32_t epoch = 0;           ///< The last one that has begun.
  uint32_t prepared = 0;        ///< The newest number that was given out.
  std::vector<Member> members;  ///< That have not ended, in the order of their ranks.
  int done = 0;                 ///< Members that have ended well.
  bool stopped = false;
  Time until = Time::never();  ///< Then members that are not ready are fenced.

  [[nodiscard]] bool changing() const { return prepared != epoch; }
};

/// A job that begins. `members`: by rank.
[[nodiscard]] State begin(const std::vector<MemberUuid>& members);

// -- what happens ---------------------------------------------------------------------------------

/// The process of a member has ended, or its host is lost.
struct Ended {
  MemberUuid member{};
  bool well = false;
  std::string how;  ///< For people: "rank 1 was killed by SIGKILL".
};
/// The process of a member does not run, though it has not ended, and others do.
struct Frozen {
  MemberUuid member{};
  std::string how;  ///< For people: "rank 1 was stopped by a signal".
};
/// A member has left its engine, and waits for this epoch.
struct Ready {
  MemberUuid member{};
  uint32_t epoch = 0;
};
/// Time has passed; see State::until.
struct Tick {};
using Event = std::variant<Ended, Frozen, Ready, Tick>;

// -- what is to be done ---------------------------------------------------------------------------

/// To all members: a new epoch comes.
struct Prepare {
  uint32_t epoch = 0;
  std::string why;
};
/// To all members: it begins.
struct Commit {
  uint32_t epoch = 0;
  std::vector<MemberUuid> members;  ///< By rank.
};
/// This member takes no part any more: its process has to end.
struct Fence {
  MemberUuid member{};
  std::string why;
};
/// The job cannot go on.
struct Stop {
  std::string why;
};
using Action = std::variant<Prepare, Commit, Fence, Stop>;

struct Decision {
  State state;
  std::vector<Action> actions;
};

/// What happens next, and why. An event of a member that is none, or of an epoch that is not
/// prepared, changes nothing.
[[nodiscard]] Decision decide(Time now, State state, const Event& event, const Options& options);

}  // namespace corro::coord
