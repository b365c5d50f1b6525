#include "coord/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace corro::coord {
namespace {

constexpr const char* kNoSlot = "its slot is taken away";

std::string count(size_t number, const char* of) {
  return fmt::format("{} {}{}", number, of, number == 1 ? "" : "s");
}

int64_t in_seconds(Duration span) {
  return std::chrono::duration_cast<std::chrono::seconds>(span).count();
}

bool is_free(const Slot& slot) { return slot.usable && !slot.occupied; }

/// As far as numbers say.
bool may_start(const State& state, const Options& options) {
  return state.done == 0 && !state.stopped && !state.last && !state.members.empty() &&
         std::ranges::count_if(state.slots, &Slot::occupied) < options.most;
}

bool all_ready(const State& state) { return std::ranges::all_of(state.members, &Member::ready); }

/// Joiners that wait are taken in only then.
bool takes_joiners(const State& state) { return !state.changing() || all_ready(state); }

/// A member has lost another one, and both are there: their places among the members.
struct Charge {
  size_t by = 0;
  size_t against = 0;
};

std::vector<Charge> charges_of(const State& state) {
  std::vector<Charge> charges;
  for (size_t by = 0; by < state.members.size(); ++by) {
    const auto& lost = state.members[by].lost;
    if (!lost) continue;
    const auto against = std::ranges::find(state.members, *lost, &Member::uuid);
    if (against == state.members.end()) continue;
    charges.push_back({by, static_cast<size_t>(against - state.members.begin())});
  }
  return charges;
}

size_t host_of(const State& state, size_t member) {
  return state.slots[state.members[member].slot].host;
}

/// Members that go together when this one is guilty of the charge.
std::vector<size_t> side_of(const State& state, const Charge& charge, size_t one) {
  if (host_of(state, charge.by) == host_of(state, charge.against)) return {one};
  std::vector<size_t> side;
  for (size_t other = 0; other < state.members.size(); ++other)
    if (host_of(state, other) == host_of(state, one)) side.push_back(other);
  return side;
}

Cut cut_of(const State& state, const std::vector<Charge>& charges) {
  std::map<std::vector<size_t>, size_t> accusers;  // By side.
  for (const Charge& charge : charges) {
    ++accusers[side_of(state, charge, charge.against)];
    accusers.try_emplace(side_of(state, charge, charge.by));
  }
  Cut cut{.how = state.members[charges.front().by].how, .sides = {}};
  for (const auto& [members, number] : accusers)
    cut.sides.push_back(
        {.host = host_of(state, members.front()), .members = members, .accusers = number});
  return cut;
}

class Decider {
 public:
  Decider(Time now, State state, const Options& options)
      : now_(now), state_(std::move(state)), options_(options) {}

  void on(const Ended& ended);
  void on(const Frozen& frozen);
  void on(const Ready& ready);
  void on(const Leaving& leaving);
  void on(const Started& started);
  void on(const Resumed& resumed);
  void on(const Offered& offered);
  void on(const Tick& tick);
  /// What an event leads to beyond itself.
  void follow_up();
  [[nodiscard]] Decision take() {
    actions_.insert(actions_.end(), told_.begin(), told_.end());
    return {std::move(state_), std::move(actions_)};
  }

 private:
  [[nodiscard]] bool may_grow() const;
  [[nodiscard]] bool waits_for_hosts() const;
  [[nodiscard]] bool is_enough(size_t members) const;
  [[nodiscard]] bool goes_on_with(size_t left) const;
  [[nodiscard]] bool waits_for_more(size_t members) const;
  [[nodiscard]] bool has_to_leave(const Member& member) const;
  [[nodiscard]] bool is_last() const;
  [[nodiscard]] size_t staying() const;
  [[nodiscard]] bool has_state(bool without_leavers) const;
  [[nodiscard]] size_t going_on() const;
  [[nodiscard]] size_t waiting() const;
  std::set<MemberUuid> find_guilty(std::vector<Charge> charges);
  bool lose_joiner(const MemberUuid& uuid);
  void lose_member(const Ended& ended);
  void wait_for_replacement(const std::string& how);
  void note_end(size_t slot, bool well, Time since);
  Time after(const Wait& wait, std::optional<size_t> host = std::nullopt);
  void hear_joiner(const Ready& ready);
  void hear_of_loss(const Ready& ready);
  void judge();
  void go_on_without_the_ended();
  void fence(const MemberUuid& member, const std::string& why);
  void fence_late();
  void finish();
  void settle();
  void change(const std::string& why, bool at_once);
  void stop(const std::string& why);
  void stop_with_too_few(const std::string& why);
  void commit_if_ready();
  void let_go();
  void commit(size_t joining);
  void commit_last();
  void give_up_waiting();
  void take_in();
  void start_joiners();

  Time now_;
  State state_;
  const Options& options_;
  std::vector<Action> actions_;
  std::vector<Tell> told_;  ///< What the policy has said comes after what it is about.
};

// -- who ends -------------------------------------------------------------------------------------

void Decider::on(const Ended& ended) {
  for (Slot& slot : state_.slots) {
    if (!slot.occupied || slot.occupant != ended.member) continue;
    slot.occupied = false;
    slot.usable = slot.usable && !ended.host_lost;
  }
  if (!lose_joiner(ended.member)) lose_member(ended);
}

/// False if it is none.
bool Decider::lose_joiner(const MemberUuid& uuid) {
  const auto joiner = std::ranges::find(state_.joiners, uuid, &Joiner::uuid);
  if (joiner == state_.joiners.end()) return false;
  note_end(joiner->slot, /*well=*/false, now_);  // It has done no work.
  state_.joiners.erase(joiner);
  commit_if_ready();  // The others may have waited for it alone.
  return true;
}

void Decider::lose_member(const Ended& ended) {
  const auto member = std::ranges::find(state_.members, ended.member, &Member::uuid);
  if (member == state_.members.end()) return;
  note_end(member->slot, ended.well, member->since);
  state_.members.erase(member);
  if (ended.well) finish();
  if (ended.well && state_.members.empty()) return settle();
  if (!ended.well) wait_for_replacement(ended.how);
  // While it changes, the others may wait for this one to be ready.
  if (!ended.well || state_.changing()) change(ended.how, /*at_once=*/true);
}

/// After a loss, if the policy wants that.
void Decider::wait_for_replacement(const std::string& how) {
  if (state_.replace_until > now_ || !may_grow() || state_.members.empty()) return;
  state_.replace_until =
      after(options_.policy.replace({.how = how,
                                     .left = state_.members.size(),
                                     .size = state_.size,
                                     .least = static_cast<size_t>(options_.least)}));
}

/// After a failure the slot is left alone for a while. One that has done well begins anew.
void Decider::note_end(size_t number, bool well, Time since) {
  Slot& slot = state_.slots[number];
  if (well || now_ - since >= options_.proof) slot.failures = 0;
  if (well) return;
  ++slot.failures;
  const Failure failure{.host = slot.host, .failures = slot.failures};
  slot.free_at = after(options_.policy.quarantine(failure), slot.host);
}

Time Decider::after(const Wait& wait, std::optional<size_t> host) {
  if (!wait.why.empty()) told_.push_back({.why = wait.why, .host = host});
  return now_ + wait.span;
}

void Decider::on(const Frozen& frozen) {
  if (lose_joiner(frozen.member)) return fence(frozen.member, frozen.how);
  const auto member = std::ranges::find(state_.members, frozen.member, &Member::uuid);
  if (member == state_.members.end() || !goes_on_with(state_.members.size() - 1)) return;
  fence(frozen.member, frozen.how);
  lose_member({.member = frozen.member, .how = frozen.how});
}

/// Its slot is occupied until it has ended.
void Decider::fence(const MemberUuid& member, const std::string& why) {
  actions_.emplace_back(Fence{.member = member, .why = why});
}

/// A member has done its work, so others are about to: who joins now would begin anew.
void Decider::finish() {
  ++state_.done;
  for (const Joiner& joiner : state_.joiners) fence(joiner.uuid, "the work is done");
  state_.joiners.clear();
}

/// No epoch comes any more.
void Decider::settle() {
  state_.prepared = state_.epoch;
  state_.until = Time::never();
}

void Decider::stop(const std::string& why) {
  state_.stopped = true;
  state_.until = Time::never();
  actions_.emplace_back(Stop{.why = why});
}

void Decider::stop_with_too_few(const std::string& why) {
  const size_t left = state_.members.size();
  stop(fmt::format("{}: {} {} left, at least {} are needed", why, count(left, "rank"),
                   left == 1 ? "is" : "are", options_.least));
}

// -- who is there ---------------------------------------------------------------------------------

/// More processes may come.
bool Decider::may_grow() const {
  return options_.most > 0 && state_.done == 0 &&
         (!state_.joiners.empty() || std::ranges::any_of(state_.slots, &Slot::usable));
}

/// Whether what is missing are hosts. With enough of them it is processes that do not come.
bool Decider::waits_for_hosts() const {
  const auto usable = std::ranges::count_if(state_.slots, &Slot::usable);
  return options_.waits_for_hosts && may_grow() && usable < options_.least;
}

bool Decider::is_enough(size_t members) const {
  return members > 0 && static_cast<int>(members) + state_.done >= options_.least;
}

/// Whether the job goes on with so many members; it may have to wait for others.
bool Decider::goes_on_with(size_t left) const {
  return is_enough(left) || (left > 0 && may_grow());
}

/// After a loss, for replacements.
bool Decider::waits_for_more(size_t members) const {
  return now_ < state_.replace_until && members < state_.size && may_grow();
}

bool Decider::has_to_leave(const Member& member) const {
  return member.leaves.has_value() || !state_.slots[member.slot].usable;
}

/// Whether the next epoch is the last one: members were asked to end, and are needed.
bool Decider::is_last() const {
  if (state_.last) return true;
  const auto goes = [this](const Member& member) { return has_to_leave(member); };
  const auto leaving = static_cast<size_t>(std::ranges::count_if(state_.members, goes));
  const auto is_asked = [](const Member& member) { return member.leaves.has_value(); };
  return std::ranges::any_of(state_.members, is_asked) &&
         !goes_on_with(state_.members.size() - leaving);
}

/// Whether a member has what the job has done, but for a step in flight. All are ready.
bool Decider::has_state(bool without_leavers) const {
  return std::ranges::any_of(state_.members, [&](const Member& member) {
    const bool is_new = member.is_new && state_.steps > 0;
    return member.steps + 1 >= state_.steps && !is_new &&
           !(without_leavers && has_to_leave(member));
  });
}

size_t Decider::staying() const {
  const auto leaving = std::ranges::count_if(
      state_.members, [this](const Member& member) { return has_to_leave(member); });
  // Without any other member, those that have to leave stay: they have the job's state.
  const size_t staying = state_.members.size() - static_cast<size_t>(leaving);
  return staying > 0 ? staying : state_.members.size();
}

/// Members of the next epoch, once all are ready. Who has to leave stays if nobody else has the state.
size_t Decider::going_on() const {
  return has_state(/*without_leavers=*/true) ? staying() : state_.members.size();
}

/// Joiners that are not invited yet.
size_t Decider::waiting() const {
  return static_cast<size_t>(std::ranges::count_if(
      state_.joiners, [](const Joiner& joiner) { return joiner.waits && !joiner.invited; }));
}

void Decider::on(const Leaving& leaving) {
  for (const MemberUuid& uuid : leaving.members) {
    if (lose_joiner(uuid)) fence(uuid, leaving.how);
    const auto member = std::ranges::find(state_.members, uuid, &Member::uuid);
    if (member != state_.members.end()) member->leaves = leaving.how;
  }
  if (state_.changing()) return commit_if_ready();
  if (!state_.last && is_last()) change(leaving.how, /*at_once=*/false);
}

void Decider::on(const Started& started) {
  state_.slots[started.slot].occupant = started.joiner;
  state_.joiners.push_back({.uuid = started.joiner, .slot = started.slot});
}

void Decider::on(const Resumed& resumed) {
  state_.prepared = std::max(state_.prepared, resumed.prepared);
  if (state_.changing()) change("another coordinator leads", /*at_once=*/true);
}

void Decider::on(const Offered& offered) {
  if (offered.slot >= state_.slots.size()) state_.slots.resize(offered.slot + 1);
  Slot& slot = state_.slots[offered.slot];
  slot.host = offered.host;
  if (offered.usable && !slot.usable) slot.failures = 0;
  slot.usable = offered.usable;
  if (slot.usable) return;
  const MemberUuid occupant = slot.occupant;
  if (slot.occupied && lose_joiner(occupant)) fence(occupant, kNoSlot);
}

// -- from one epoch to the next -------------------------------------------------------------------

void Decider::on(const Ready& ready) {
  hear_joiner(ready);
  if (ready.epoch != state_.prepared) return;
  if (!state_.changing()) return hear_of_loss(ready);
  for (Member& member : state_.members) {
    if (member.uuid != ready.member) continue;
    member.ready = true;
    member.steps = ready.steps;
    member.is_new = member.is_new && ready.steps == 0;
    state_.steps = std::max(state_.steps, ready.steps);
  }
  commit_if_ready();
}

void Decider::hear_joiner(const Ready& ready) {
  const auto joiner = std::ranges::find(state_.joiners, ready.member, &Joiner::uuid);
  if (joiner == state_.joiners.end()) return;
  if (!joiner->waits && waiting() == 0) {
    state_.gather_until =
        after(options_.policy.gather({.size = state_.members.size(),
                                      .coming = state_.joiners.size(),
                                      .most = static_cast<size_t>(options_.most)}));
  }
  joiner->waits = true;
  joiner->ready |= joiner->invited && ready.epoch == state_.prepared;
}

/// Whoever was lost may have ended, which is known soon.
void Decider::hear_of_loss(const Ready& ready) {
  const auto member = std::ranges::find(state_.members, ready.member, &Member::uuid);
  if (member == state_.members.end() || !ready.lost) return;
  member->lost = ready.lost;
  member->how = ready.how;
  state_.judge_at = std::min(state_.judge_at, now_ + options_.testimony);
}

/// Members that live have lost each other: a host of two goes, or one of two members on a host.
void Decider::judge() {
  state_.judge_at = Time::never();
  const std::vector<Charge> charges = charges_of(state_);
  if (charges.empty()) return go_on_without_the_ended();
  const std::set<MemberUuid> guilty = find_guilty(charges);
  const size_t left = state_.members.size() - guilty.size();
  const std::string why = state_.members[charges.front().by].how + ", and both live";
  if (goes_on_with(left)) {
    for (const MemberUuid& uuid : guilty) {
      const auto member = std::ranges::find(state_.members, uuid, &Member::uuid);
      fence(uuid, why);
      note_end(member->slot, /*well=*/false, member->since);
      state_.members.erase(member);
    }
    wait_for_replacement(why);
  }
  change(why, /*at_once=*/true);
}

/// The sides without which no charge is left.
std::set<MemberUuid> Decider::find_guilty(std::vector<Charge> charges) {
  std::set<MemberUuid> guilty;
  while (!charges.empty()) {
    const Cut cut = cut_of(state_, charges);
    const Verdict verdict = options_.policy.fence(cut);
    CORRO_CHECK(verdict.side < cut.sides.size(), verdict.side);
    const std::vector<size_t>& side = cut.sides[verdict.side].members;
    if (!verdict.why.empty())
      told_.push_back({.why = verdict.why, .host = cut.sides[verdict.side].host});
    for (const size_t member : side) guilty.insert(state_.members[member].uuid);
    std::erase_if(charges, [&](const Charge& charge) {
      return std::ranges::find(side, charge.by) != side.end() ||
             std::ranges::find(side, charge.against) != side.end();
    });
  }
  return guilty;
}

/// One that has ended well may still be needed by others, which have left the epoch then.
void Decider::go_on_without_the_ended() {
  const auto member =
      std::ranges::find_if(state_.members, [](const Member& one) { return one.lost.has_value(); });
  if (member == state_.members.end() || state_.changing()) return;
  change(member->how + ", which has ended", /*at_once=*/true);
}

void Decider::on(const Tick& /*tick*/) {
  if (now_ >= state_.judge_at) return judge();
  if (!state_.changing() || now_ < state_.until) return;
  if (state_.at_once || all_ready(state_)) return fence_late();
  change(fmt::format("not all ranks have come to the end of a step after {} s",
                     in_seconds(options_.step)),
         /*at_once=*/true);
}

/// Nobody waits any longer for those that are not ready, nor for more to come.
void Decider::fence_late() {
  const std::string why =
      fmt::format("not ready for the next epoch after {} s", in_seconds(options_.patience));
  const auto joiners = std::erase_if(state_.joiners, [this](const Joiner& joiner) {
    if (joiner.ready || !joiner.invited) return false;
    fence(joiner.uuid, "not ready for the next epoch");
    note_end(joiner.slot, /*well=*/false, now_);
    return true;
  });
  const auto members = std::erase_if(state_.members, [&](const Member& member) {
    if (!member.ready) fence(member.uuid, why);
    return !member.ready;
  });
  if (members > 0) {
    const std::string how = fmt::format("{} {}", count(members, "rank"), why);
    wait_for_replacement(how);
    return change(how, /*at_once=*/true);
  }
  state_.until = now_ + options_.patience;
  commit_if_ready();
  if (state_.changing() && joiners == 0 && !waits_for_hosts())
    stop_with_too_few(fmt::format("nobody has joined for {} s", in_seconds(options_.patience)));
}

/// Prepares an epoch of the members that are left, and of the joiners that wait.
void Decider::change(const std::string& why, bool at_once) {
  if (!goes_on_with(state_.members.size())) return stop_with_too_few(why);
  if (options_.resets && state_.resets >= *options_.resets && !is_last()) {
    return stop(fmt::format("{}: that would be more than {}, the limit", why,
                            count(static_cast<size_t>(state_.resets), "reset")));
  }
  ++state_.prepared;
  state_.at_once = at_once;
  state_.until = now_ + (at_once ? options_.patience : options_.step);
  state_.judge_at = Time::never();
  for (Member& member : state_.members) {
    member.ready = false;
    member.lost.reset();
  }
  for (Joiner& joiner : state_.joiners) {
    joiner.ready = false;
    joiner.invited = joiner.waits;
  }
  actions_.emplace_back(Prepare{.epoch = state_.prepared, .at_once = at_once, .why = why});
}

void Decider::commit_if_ready() {
  if (!state_.changing() || state_.members.empty() || !all_ready(state_)) return;
  if (!has_state(/*without_leavers=*/false)) {
    return stop(
        fmt::format("nobody is left who has the state after {}", count(state_.steps, "step")));
  }
  if (is_last()) return commit_last();
  const auto joining = static_cast<size_t>(std::ranges::count_if(state_.joiners, &Joiner::invited));
  const auto ready = static_cast<size_t>(std::ranges::count_if(state_.joiners, &Joiner::ready));
  if (ready < joining) {
    state_.until = std::min(state_.until, now_ + options_.answer);
  } else if (is_enough(going_on() + joining) && !waits_for_more(going_on() + joining)) {
    commit(joining);
  } else {
    let_go();  // Others may come into their slots.
  }
}

/// Of those that have to leave.
void Decider::let_go() {
  if (going_on() == state_.members.size()) return;
  std::erase_if(state_.members, [this](const Member& member) {
    const bool goes = has_to_leave(member);
    if (goes) fence(member.uuid, member.leaves.value_or(kNoSlot));
    return goes;
  });
}

/// All take part: what a joiner would do has no time.
void Decider::commit_last() {
  for (const Joiner& joiner : state_.joiners) fence(joiner.uuid, "the job ends");
  state_.joiners.clear();
  state_.last = true;
  commit(0);
}

void Decider::commit(size_t joining) {
  if (!state_.last) let_go();
  for (const Joiner& joiner : state_.joiners) {
    if (joiner.invited)
      state_.members.push_back(
          {.uuid = joiner.uuid, .slot = joiner.slot, .since = now_, .is_new = true});
  }
  std::erase_if(state_.joiners, [](const Joiner& joiner) { return joiner.invited; });
  state_.epoch = state_.prepared;
  state_.steps = 0;
  for (const Member& member : state_.members) state_.steps = std::max(state_.steps, member.steps);
  state_.size = state_.members.size();
  state_.replace_until = {};
  ++state_.resets;
  state_.until = Time::never();
  Commit commit{.epoch = state_.epoch, .members = {}, .joined = joining, .last = state_.last};
  for (Member& member : state_.members) {
    member.ready = false;
    commit.members.push_back(member.uuid);
  }
  actions_.emplace_back(std::move(commit));
}

void Decider::follow_up() {
  if (!state_.stopped) give_up_waiting();
  if (!state_.stopped) take_in();
  if (waiting() == 0) state_.gather_until = Time::never();
  start_joiners();
}

/// For a replacement.
void Decider::give_up_waiting() {
  if (state_.replace_until == Time{} || now_ < state_.replace_until) return;
  state_.replace_until = {};
  commit_if_ready();
}

/// Changes the epoch for joiners that wait, and for members that have to leave.
void Decider::take_in() {
  if (!takes_joiners(state_) || state_.members.empty() || state_.done > 0 || state_.last) return;
  const size_t leaving = state_.members.size() - staying();
  if (!state_.changing() && leaving > 0 && goes_on_with(staying())) {
    const auto first = std::ranges::find_if(
        state_.members, [this](const Member& member) { return has_to_leave(member); });
    return change(fmt::format("{} {} to leave: {}", count(leaving, "rank"),
                              leaving == 1 ? "has" : "have", first->leaves.value_or(kNoSlot)),
                  /*at_once=*/false);
  }
  const size_t news = waiting();
  const bool all_wait = std::ranges::all_of(state_.joiners, &Joiner::waits);
  if (news == 0 || (!all_wait && now_ < state_.gather_until)) return;
  // While it changes nobody is in a step: it was paused.
  change(fmt::format("{} {}", count(news, "rank"), news == 1 ? "joins" : "join"),
         /*at_once=*/state_.changing());
}

void Decider::start_joiners() {
  for (size_t slot = 0; slot < state_.slots.size() && may_start(state_, options_); ++slot) {
    if (!is_free(state_.slots[slot]) || now_ < state_.slots[slot].free_at) continue;
    state_.slots[slot].occupied = true;
    state_.slots[slot].occupant = {};
    actions_.emplace_back(Start{.slot = slot});
  }
}

}  // namespace

State begin(const std::vector<MemberUuid>& members, size_t slots) {
  State state;
  state.slots.resize(std::max(slots, members.size()));
  for (const MemberUuid& uuid : members) {
    const size_t slot = state.members.size();
    state.slots[slot].occupied = true;
    state.slots[slot].occupant = uuid;
    state.members.push_back({.uuid = uuid, .slot = slot});
  }
  state.size = members.size();
  return state;
}

State resume(uint32_t epoch, std::vector<Member> members, std::vector<Slot> slots) {
  State state;
  state.epoch = state.prepared = epoch;
  state.size = members.size();
  state.slots = std::move(slots);
  for (Slot& slot : state.slots) slot.occupied = false;
  state.members = std::move(members);
  for (const Member& member : state.members) {
    state.slots[member.slot].occupied = true;
    state.slots[member.slot].occupant = member.uuid;
  }
  return state;
}

Decision decide(Time now, State state, const Event& event, const Options& options) {
  if (state.stopped) return {std::move(state), {}};
  Decider decider(now, std::move(state), options);
  std::visit([&](const auto& happened) { decider.on(happened); }, event);
  decider.follow_up();
  return decider.take();
}

Time wake(const State& state, const Options& options) {
  if (state.stopped) return Time::never();
  Time due = std::min(state.until, state.judge_at);
  if (state.changing() && state.replace_until != Time{}) due = std::min(due, state.replace_until);
  if (takes_joiners(state)) due = std::min(due, state.gather_until);
  if (!may_start(state, options)) return due;
  for (const Slot& slot : state.slots) {
    if (is_free(slot)) due = std::min(due, slot.free_at);
  }
  return due;
}

}  // namespace corro::coord
