#include "agent/agent_course.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

namespace corro::agent {
namespace {

constexpr Duration kDrainGrace = std::chrono::milliseconds(300);
constexpr Duration kRestPatience = std::chrono::seconds(2);    ///< For what is left to die.
constexpr Duration kLookPause = std::chrono::milliseconds(5);  ///< At what was left running.

}  // namespace

// -- who commands ---------------------------------------------------------------------------------

bool AgentCourse::follow(uint64_t term, Time now) {
  if (term < term_) return false;
  term_ = term;
  silence_.hear(now);
  for (size_t number = 0; number < ranks_.size(); ++number) {
    const Rank& rank = ranks_[number];
    if (!rank.runs && !membership_.admits(rank.about)) continue;
    say(number, Started{.pid = rank.pid});
    if (rank.joined) say(number, Joined{});
    if (rank.ready) say(number, *rank.ready);
    if (rank.leaves) say(number, Leaving{});
    for (const auto& [kind, told] : rank.notices)
      say(number, Notice{.said = told.first, .age = now - told.second});
    if (!rank.runs) order(Report{number, /*ended=*/true});
    if (rank.left) say(number, Left{});
  }
  for (const Record& record : put_) say(record);
  if (leaves_) say(Leaving{});
  say(Alive{});
  return true;
}

// -- what the commander says ----------------------------------------------------------------------

bool AgentCourse::accepts(const Subject& about) {
  if (!std::exchange(has_heard_, true)) {
    job_ = about.job;
    membership_.begin(about.epoch);
  }
  return about.job == job_ && !membership_.is_over(about.epoch);
}

void AgentCourse::hear(const Message& message, Time now) {
  std::visit([&](const auto& body) { on(message.about, body, now); }, message.body);
}

Status AgentCourse::stranger(const Subject& about) const {
  return {Code::kFailedPrecondition,
          fmt::format("rank {} is not a member of epoch {}", about.rank, membership_.epoch())};
}

Status AgentCourse::admit(const Subject& about) const {
  return membership_.admits(about) ? Status() : stranger(about);
}

void AgentCourse::on(const Subject& about, const Signal& signal, Time /*now*/) {
  ending_ = ending_ || signal.ends;
  if (about.rank < 0) {
    silence_.hear_signal(signal.number);
    return signal_ranks(signal.number);
  }
  const auto rank = find(about);
  if (!rank) return;
  // What a shell in its place has started would go on.
  if (signal.number == SIGKILL) {
    ranks_[*rank].killed = true;
    return order(KillRank{*rank});
  }
  order(SendSignal{rank, signal.number});
}

/// Ranks may still need the servers when they are asked to end.
void AgentCourse::signal_ranks(int number) {
  const bool is_for_all = number == SIGKILL || number == SIGTSTP || number == SIGCONT;
  const auto serving = [](const Rank& rank) { return wire::is_server(rank.about.rank); };
  if (is_for_all || std::ranges::none_of(ranks_, serving))
    return order(SendSignal{std::nullopt, number});
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!serves(rank)) order(SendSignal{rank, number});
}

void AgentCourse::on(const Subject& /*about*/, const Look& /*look*/, Time /*now*/) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].runs) order(Report{rank});
  say(Alive{});
}

void AgentCourse::on(const Subject& about, const Prepare& prepare, Time /*now*/) {
  if (state_ != State::kWatching) return;
  prepared_ = std::max(prepared_, about.epoch);
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].runs) order(PrepareWorker{rank, about.epoch, prepare});
}

/// The epoch begins: each process of this host that takes part goes on in it, others are ended.
void AgentCourse::on(const Subject& about, const Members& members, Time /*now*/) {
  if (state_ != State::kWatching) return;
  const bool is_next = about.epoch != membership_.epoch();
  if (const Status status = membership_.announce(about.epoch, members); !status.ok())
    return say(Trouble{status.message()});
  if (is_next) {
    early_.clear();
    put_.clear();
    order(StartEpoch{static_cast<int32_t>(members.members.size())});
  }
  for (size_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    if (!membership_.admits(rank.about)) {
      expel(rank, number);
      continue;
    }
    const Member* member = membership_.find(rank.about);
    if (member == nullptr) continue;
    rank.about.epoch = about.epoch;
    rank.about.rank = member->rank;
    if (is_next) rank.ready.reset();
    if (is_next) order(CommitWorker{number, about.epoch, member->rank, members.last});
    // It was said in the epoch before, which the commander may have left by then.
    if (is_next && !rank.runs) order(Report{number, /*ended=*/true});
  }
}

/// Ends a process that takes no part in the epoch, and says so, unless it is about to end.
void AgentCourse::expel(Rank& rank, size_t number) {
  if (!rank.runs) return;
  if (!rank.killed) {
    say(Trouble{fmt::format("process {} on {} is not a member of epoch {}, and was ended", rank.pid,
                            host_, membership_.epoch())});
  }
  rank.fenced = true;
  order(KillRank{number});
}

void AgentCourse::on(const Subject& /*about*/, const Record& record, Time /*now*/) {
  if (ranks_.empty()) return early_.push_back(record);
  order(Supply{record});
}

void AgentCourse::on(const Subject& about, const Left& /*left*/, Time /*now*/) {
  if (membership_.admits(about)) order(EndRank{about.rank, membership_.host_of(about)});
}

void AgentCourse::on(const Subject& /*about*/, const Fence& fence, Time now) {
  if (state_ != State::kWatching) return;
  state_ = State::kFencing;
  until_ = now + std::max(fence.grace, Duration::zero());
}

void AgentCourse::on(const Subject& /*about*/, const Release& /*release*/, Time now) {
  if (state_ == State::kWatching) drain_until(now + kDrainGrace);
}

// -- what becomes of ranks ------------------------------------------------------------------------

void AgentCourse::on_start(const Subject& about, int32_t pid) {
  ranks_.push_back({.about = about, .pid = pid});
  say(ranks_.size() - 1, Started{.pid = pid});
  for (Record& record : std::exchange(early_, {})) order(Supply{std::move(record)});
}

void AgentCourse::on_join(size_t rank) {
  ranks_[rank].joined = true;
  say(rank, Joined{});
}

void AgentCourse::on_ready(size_t rank, const ReadyForEpoch& ready) {
  ranks_[rank].ready = ready;
  say(rank, ready);
}

void AgentCourse::on_leave(size_t rank) {
  ranks_[rank].leaves = true;
  say(rank, Leaving{});
}

void AgentCourse::on_notice(size_t rank, const wire::Notice& notice, Time now) {
  say(rank, Notice{.said = notice});
  ranks_[rank].notices[notice.kind] = {notice, now};
}

void AgentCourse::on_leave() {
  if (!std::exchange(leaves_, true)) say(Leaving{});
}

/// A rank that leaves at the end of a step waits for the epoch after it. Before the signal comes it
/// has to see that there is none: then it ends at once.
void AgentCourse::end_ranks() {
  order(EndEpochs{});
  order(SendSignal{std::nullopt, SIGTERM});
}

void AgentCourse::on_put(Record record) {
  say(record);
  put_.push_back(std::move(record));
}

void AgentCourse::on_end(size_t rank, bool well) {
  ranks_[rank].runs = false;
  // Who waits for a rank that has failed is stopped; without a server the job goes on.
  ranks_[rank].departs = (well || serves(rank)) && !ranks_[rank].fenced;
  order(Report{rank, /*ended=*/true});
}

void AgentCourse::tell_departures(const std::function<bool(int32_t)>& joined,
                                  const std::function<bool()>& anything_left) {
  for (size_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    if (!rank.departs) continue;
    if (joined(rank.about.rank) || !membership_.admits(rank.about)) rank.departs = false;
    if (!rank.departs || anything_left()) continue;
    rank.departs = false;
    rank.left = true;
    order(EndRank{rank.about.rank, ""});
    say(number, Left{});
  }
}

std::optional<size_t> AgentCourse::find(const Subject& about) const {
  const auto found = std::ranges::find(ranks_, about, &Rank::about);
  if (found == ranks_.end()) return std::nullopt;
  return static_cast<size_t>(found - ranks_.begin());
}

std::optional<size_t> AgentCourse::find_number(int32_t number) const {
  std::optional<size_t> found;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Subject& one = about(rank);
    if (one.rank != number || one.epoch == kNoEpochYet) continue;
    if (!found || one.epoch > about(*found).epoch) found = rank;
  }
  return found;
}

// -- fencing --------------------------------------------------------------------------------------

void AgentCourse::drain_until(Time until) {
  state_ = State::kDraining;
  until_ = until;
}

/// Waits for what is left until the grace is over, then kills it until nothing is.
void AgentCourse::see_rest(const std::vector<pid_t>& rest, Time now) {
  if (state_ != State::kFencing) return;
  left_ = !rest.empty();
  if (!left_ || now >= until_ + kRestPatience) return drain_until(now + kDrainGrace);
  if (now < until_) return;
  ending_ = true;
  order(KillRest{rest});
}

void AgentCourse::drain(bool open, bool held, Time now) {
  if (state_ != State::kDraining || (open && (held || now < until_))) return;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!ranks_[rank].runs) order(Report{rank, /*ended=*/true});
  say(Fenced{.left = left_});
  state_ = State::kFenced;
}

void AgentCourse::resume(Time now) {
  if (state_ == State::kDraining) until_ = now + kDrainGrace;
}

Time AgentCourse::next_state(bool held, Time now) const {
  if (state_ == State::kFencing) return now + kLookPause;
  if (state_ == State::kDraining && !held) return until_;
  return Time::never();
}

}  // namespace corro::agent
