// Joining: how a rank comes to know all ranks of a job, without I/O.
//
// Ranks pass on introductions in rounds, as in dissemination barriers. In round k a rank dials the
// one 2^k further and tells it of the 2^k ranks up to itself; so after round k it knows 2^(k+1),
// and after log2 P rounds all. Each pair of a round authenticates before it says anything, so every
// introduction came over authenticated connections alone. A rank is
//   dialling  the target of a round that it can tell everything of: it knows the target's place
//             (found()) and the introductions of all rounds before;
//   telling   linked(): it has sent the round, and waits for the answer "known";
//   done      with this round: known() came; the connection is not needed any more.
// Rounds wait for each other only where one has to tell what another brings; who receives does not
// care in which order rounds come, how often, and in how many parts: an introduction counts once. A
// connection that breaks (unlinked()) is dialled again and the whole round told again. So what is
// lost or late or comes twice costs time only. A rank that is over still answers: its answer may
// have been lost.
//
// If nothing happens for a second, a rank asks the bootstrap for all that it has not heard of: who
// has not put its record there has not started, and is named at the deadline; who is gone() ends
// the joining at once. A rank that finds its own settings wrong, or another
// one's, goes on for a second (refuse()), so that others see the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace corro::transport {

/// Returns "ranks 1, 2 and 5", "rank 3", and for many "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 90 more".
[[nodiscard]] std::string list_ranks(const std::vector<int32_t>& ranks);

/// What the one who drives a Joining has to do.
struct JoiningAction {
  enum class Kind : uint8_t {
    kAsk,    ///< Look for the rank's place in the bootstrap: then found() or gone().
    kDial,   ///< Connect to it, again and again: then linked().
    kTell,   ///< Send it `round`: the introductions of `ranks`.
    kKnown,  ///< Answer it: everything of its `round` is here.
  };
  Kind kind;
  int32_t rank;
  uint8_t round = 0;
  std::vector<int32_t> ranks = {};
};

/// Loop-confined.
class Joining {
 public:
  struct Options {
    int32_t rank = 0;
    int32_t size = 1;
    Bytes introduction;  ///< Of this rank; opaque here.
    Time started, deadline;
  };
  explicit Joining(Options options);

  /// The rank's place is known: it has put it into the bootstrap.
  void found(int32_t rank, Time now);
  /// The rank ended, or will never come: `why` names it. Nothing if it is not needed any more.
  void gone(int32_t rank, Status why);
  /// The connection that this rank dials to the target of a round is there, or has broken.
  void linked(int32_t rank, Time now);
  void unlinked(int32_t rank, Time now);
  /// Rank `from` tells of `rank` in `round`.
  void introduced(int32_t from, uint8_t round, int32_t rank, Bytes introduction, Time now);
  /// All that `from` told in one piece has been handed to introduced().
  void told(int32_t from, uint8_t round, Time now);
  /// Rank `from`, the target of `round`, knows everything of it.
  void known(int32_t from, uint8_t round, Time now);
  /// The job cannot start, with `why`; others may still have to see it. Only the first one counts.
  void refuse(Status why, Time now);
  /// Nothing may have happened for a while.
  void expire(Time now);

  [[nodiscard]] std::vector<JoiningAction> take_actions();
  /// When expire() has something to do next.
  [[nodiscard]] Time next_wake() const;
  /// True once everybody is known here, and all targets know what this rank has to tell; or it has
  /// failed.
  [[nodiscard]] bool over() const;
  /// OK while it has not failed.
  [[nodiscard]] const Status& failure() const { return failure_; }
  /// Of each rank, empty while it is unknown.
  [[nodiscard]] const std::vector<Bytes>& introductions() const { return introductions_; }
  /// How the dialling of a rank went last, for messages.
  void note_trouble(int32_t rank, std::string how);

 private:
  struct Round {
    int32_t target;  ///< 2^k further.
    int32_t source;  ///< 2^k before.
    int32_t count;   ///< Introductions that are told in it: the teller's, and of those before it.
    enum class State : uint8_t { kWaiting, kDialling, kTelling, kDone } state = State::kWaiting;
  };
  [[nodiscard]] int32_t before(int32_t rank, int32_t distance) const;
  [[nodiscard]] bool knows(int32_t last, int32_t count) const;
  [[nodiscard]] Round* round_to(int32_t rank);
  [[nodiscard]] std::vector<int32_t> missing() const;
  [[nodiscard]] Status late(Time now) const;
  void advance(Time now);
  void ask(int32_t rank);

  const Options options_;
  std::vector<Bytes> introductions_;
  std::vector<bool> found_, asked_;
  std::vector<Round> rounds_;
  std::vector<JoiningAction> actions_;
  std::vector<std::pair<int32_t, std::string>> trouble_;
  int32_t unknown_;
  int32_t known_before_ = 1;  ///< This rank and those before it, up to the first that is unknown.
  Time moved_;                ///< When something happened last.
  bool last_look_ = false;    ///< The deadline is over: everybody has been asked for once more.
  Status refusal_, failure_;
  Time refuse_at_ = Time::never();
};

}  // namespace corro::transport
