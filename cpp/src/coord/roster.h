// Roster: who takes part in a job, epoch after epoch. This is the one place that decides it.
//
// A job has *slots* on its hosts, in each of which one process can be. It begins in epoch 0 with a member in
// some of them. Its epoch is *settled* until a member ends before its work is done, joiners wait,
// or a member has to leave. Then the epoch is *changing*:
//
//   Prepare    goes to all members, and to the joiners that wait. Each leaves its engine, and says
//              Ready: at once where a member was lost, else at the end of its step.
//   Commit     goes to all once they are ready. The new epoch has begun, and the roster is settled
//              again. Ranks are numbered anew: members in the old order, and joiners behind them.
//
// A member that has lost another one leaves unasked, and says whom. In a moment it is known that this
// one has ended. Else both live, and the link between them is cut: the roster *judges*, and fences
// the side that the policy names: the smaller one, if it is the standard policy.
//
// A member that ends while the epoch changes starts the change once more, under the next number.
// So nobody waits for it, and no two epochs have one number. A member that is not ready in time, or
// that is frozen, is fenced: it counts as ended, and whoever has it kills it. A frozen one without
// which too few would be left is waited for: it may come back.
//
// A job that may grow has a process started in each free slot, up to its most members: a *joiner*.
// It *waits* once it has said Ready for the first time. Joiners that were started together are
// taken in together, if they come soon after another. A slot whose process has failed is used
// again, but later each time. How long is waited, the policy says (coord/policy.h).
//
// A member that is ready says how many *steps* it has applied, so it is known who has the job's state.
// A joiner gets that in its first epoch. Before, it cannot go on alone: if those who have the state
// have to leave, they stay for another epoch. If they are lost, the job stops, since it would begin
// anew. (Members differ by a step: the one in which the epoch was broken off may be done by some.
// That a new one has done no step beside one is no such difference.)
//
// A member that was asked to end says so (Leaving). An epoch is planned in which it takes no part. If
// the job cannot go on without it, that is the *last* one, and all take part in it: they are in the
// same step then, save what they have, and end well.
//
// After a loss, who is left may wait a while for a replacement before they go on with fewer.
//
// With fewer than the least number of members a job stops. One that may grow is *paused* instead:
// its epoch goes on changing until enough joiners wait. A member that ends well has done its work.
// It does not change the epoch, unless others still need it and say so; it counts for the least
// number, and nobody joins from then on. A job whose epoch was changed as often as it may be stops,
// too.
//
// Another coordinator may go on with a job, from the epoch that has begun last. If some member was
// told of a newer one, nobody knows who waits for it: then it changes once more.
//
// decide() has no clock and no I/O. Its caller reports what has happened, and carries out what was
// decided, in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "coord/policy.h"

namespace corro::coord {

/// Names a process of the job for as long as the job lasts, whatever its rank is in an epoch.
using MemberUuid = std::array<std::byte, 16>;

struct Options {
  int least = 1;                                  ///< Members; with fewer the job stops, or waits.
  int most = 0;                                   ///< Members with joiners; 0: nobody joins.
  Duration patience = std::chrono::seconds(600);  ///< For members to be ready, and to be enough.
  Duration step = std::chrono::seconds(300);      ///< For the end of a step, where nobody is lost.
  Duration answer = std::chrono::seconds(10);     ///< For a joiner, after all members are ready.
  Duration proof = std::chrono::minutes(1);  ///< So long a slot does well to start anew with it.
  Duration testimony = std::chrono::seconds(2);  ///< Until the end of a lost member is known.
  /// While too few slots can be used, members wait for others without an end.
  bool waits_for_hosts = false;
  std::optional<int> resets = std::nullopt;  ///< Epochs after the first one; none: any number.
  Policy policy = standard_policy({});
};

struct Slot {
  size_t host = 0;        ///< Slots of one host are cut off together.
  bool usable = true;     ///< Its host is there.
  bool occupied = false;  ///< By a process that has not ended, fenced or not.
  MemberUuid occupant{};  ///< All zeros: it was not started yet.
  int failures = 0;       ///< In a row.
  Time free_at{};         ///< Then another process may be started in it.
};

struct Member {
  MemberUuid uuid{};
  size_t slot = 0;
  Time since{};                                   ///< It is one.
  bool is_new = false;                            ///< Nobody knows yet that it has the state.
  bool ready = false;                             ///< For the epoch that is prepared.
  std::optional<std::string> leaves = {};         ///< It was asked to end: for people.
  uint64_t steps = 0;                             ///< That it has applied, when it was ready last.
  std::optional<MemberUuid> lost = std::nullopt;  ///< Whom it has lost: it has left the epoch.
  std::string how = {};                           ///< For people: "rank 1 has lost rank 0".
};

struct Joiner {
  MemberUuid uuid{};
  size_t slot = 0;
  bool waits = false;    ///< It has said Ready.
  bool invited = false;  ///< To the epoch that is prepared.
  bool ready = false;    ///< For that.
};

/// Plain data: a copy is a snapshot.
struct State {
  uint32_t epoch = 0;           ///< The last one that has begun.
  uint32_t prepared = 0;        ///< The newest number that was given out.
  std::vector<Member> members;  ///< That have not ended, in the order of their ranks.
  std::vector<Joiner> joiners;  ///< In the order in which they were started.
  std::vector<Slot> slots;
  int done = 0;        ///< Members that have ended well.
  int resets = 0;      ///< Epochs that have begun after the first one.
  uint64_t steps = 0;  ///< That the job's members have applied, by what they have said.
  bool stopped = false;
  bool last = false;                  ///< The epoch that is: nobody joins or leaves any more.
  bool at_once = false;               ///< Members leave in the middle of a step.
  Time until = Time::never();         ///< Then members that are not ready are fenced, or stopped.
  Time gather_until = Time::never();  ///< Then the joiners that wait are taken in.
  Time replace_until{};               ///< Then an epoch with fewer than `size` may begin.
  size_t size = 0;                    ///< Members of the epoch that is, as it began.
  Time judge_at = Time::never();      ///< Then those that have lost each other are judged.

  [[nodiscard]] bool changing() const { return prepared != epoch; }
};

/// A job that begins. `members`: by rank, and so by slot; further slots are free.
[[nodiscard]] State begin(const std::vector<MemberUuid>& members, size_t slots);
/// One whose coordinator was lost, in the last epoch that has begun. Resumed has to come before
/// what else happens.
[[nodiscard]] State resume(uint32_t epoch, std::vector<Member> members, std::vector<Slot> slots);

// -- what happens ---------------------------------------------------------------------------------

/// The process of a member or joiner has ended.
struct Ended {
  MemberUuid member{};
  bool well = false;
  std::string how;         ///< For people: "rank 1 was killed by SIGKILL".
  bool host_lost = false;  ///< The slot cannot be used any more.
};
/// The process of a member or joiner does not run, though it has not ended, and others do.
struct Frozen {
  MemberUuid member{};
  std::string how;  ///< For people: "rank 1 was stopped by a signal".
};
/// A member has left its engine, and waits for this epoch; a joiner waits for any. The epoch that
/// is: it has left that unasked.
struct Ready {
  MemberUuid member{};
  uint32_t epoch = 0;
  uint64_t steps = 0;                             ///< That it has applied.
  std::optional<MemberUuid> lost = std::nullopt;  ///< Whose loss has made it leave.
  std::string how = {};                           ///< Then: for people, "rank 1 has lost rank 0".
};
/// Members or joiners were asked to end, at once.
struct Leaving {
  std::vector<MemberUuid> members;
  std::string how;  ///< For people: "rank 1 was asked to end".
};
/// The process of a joiner was started, as Start has said.
struct Started {
  size_t slot = 0;
  MemberUuid joiner{};
};
/// Another coordinator goes on with the job. All agents have said which epochs they were told of:
/// this is the newest one.
struct Resumed {
  uint32_t prepared = 0;
};
/// A slot can be used from now on, or cannot any more: who is there has to leave.
struct Offered {
  size_t slot = 0;
  bool usable = true;
  size_t host = 0;
};
/// Time has passed; see wake().
struct Tick {};
using Event = std::variant<Ended, Frozen, Ready, Leaving, Started, Resumed, Offered, Tick>;

// -- what is to be done ---------------------------------------------------------------------------

/// To all members, and to the joiners that wait: a new epoch comes.
struct Prepare {
  uint32_t epoch = 0;
  bool at_once = true;  ///< Else members leave at the end of their step.
  std::string why;
};
/// To all members: it begins.
struct Commit {
  uint32_t epoch = 0;
  std::vector<MemberUuid> members;  ///< By rank.
  size_t joined = 0;                ///< So many of them, the last ones, are new.
  bool last = false;                ///< They are to save what they have, and to end.
};
/// This member or joiner takes no part any more: its process has to end.
struct Fence {
  MemberUuid member{};
  std::string why;
};
/// A process is to be started in this slot.
struct Start {
  size_t slot = 0;
};
/// The job cannot go on.
struct Stop {
  std::string why;
};
/// The policy has said something.
struct Tell {
  std::string why;
  std::optional<size_t> host = std::nullopt;  ///< Of the slot that it is about.
};
using Action = std::variant<Prepare, Commit, Fence, Start, Stop, Tell>;

struct Decision {
  State state;
  std::vector<Action> actions;
};

/// What happens next, and why. An event of a member that is none, or of an epoch that is not
/// prepared, changes nothing.
[[nodiscard]] Decision decide(Time now, State state, const Event& event, const Options& options);

/// When decide() has to hear a Tick, if nothing happens before.
[[nodiscard]] Time wake(const State& state, const Options& options);

}  // namespace corro::coord
