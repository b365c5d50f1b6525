#include "coord/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace corro::coord {
namespace {

class Decider {
 public:
  Decider(Time now, State state, const Options& options)
      : now_(now), state_(std::move(state)), options_(options) {}

  void on(const Ended& ended);
  void on(const Frozen& frozen);
  void on(const Ready& ready);
  void on(const Tick& tick);
  [[nodiscard]] Decision take() { return {std::move(state_), std::move(actions_)}; }

 private:
  [[nodiscard]] bool has(const MemberUuid& uuid) const;
  [[nodiscard]] bool enough(size_t left) const;
  void settle();
  void change(const std::string& why);
  void commit_if_ready();

  Time now_;
  State state_;
  const Options& options_;
  std::vector<Action> actions_;
};

void Decider::on(const Ended& ended) {
  const auto erased =
      std::erase_if(state_.members, [&](const Member& one) { return one.uuid == ended.member; });
  if (erased == 0) return;
  if (ended.well) ++state_.done;
  if (ended.well && state_.members.empty()) return settle();
  // While it changes, the others may wait for this one to be ready.
  if (!ended.well || state_.changing()) change(ended.how);
}

void Decider::on(const Frozen& frozen) {
  if (!has(frozen.member) || !enough(state_.members.size() - 1)) return;
  actions_.emplace_back(Fence{.member = frozen.member, .why = frozen.how});
  on(Ended{.member = frozen.member, .how = frozen.how});
}

void Decider::on(const Ready& ready) {
  if (!state_.changing() || ready.epoch != state_.prepared) return;
  for (Member& member : state_.members) member.ready |= member.uuid == ready.member;
  commit_if_ready();
}

void Decider::on(const Tick& /*tick*/) {
  if (!state_.changing() || now_ < state_.until) return;
  const std::string why =
      fmt::format("not ready for the next epoch after {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count());
  for (const Member& member : state_.members) {
    if (!member.ready) actions_.emplace_back(Fence{.member = member.uuid, .why = why});
  }
  const auto fenced = std::erase_if(state_.members, [](const Member& one) { return !one.ready; });
  change(fmt::format("{} ranks were {}", fenced, why));
}

bool Decider::has(const MemberUuid& uuid) const {
  return std::ranges::find(state_.members, uuid, &Member::uuid) != state_.members.end();
}

/// Whether the job goes on with so many members.
bool Decider::enough(size_t left) const {
  return left > 0 && static_cast<int>(left) + state_.done >= options_.least;
}

/// All have done their work: no epoch comes any more.
void Decider::settle() {
  state_.prepared = state_.epoch;
  state_.until = Time::never();
}

/// Prepares an epoch of the members that are left.
void Decider::change(const std::string& why) {
  const size_t left = state_.members.size();
  if (!enough(left)) {
    state_.stopped = true;
    state_.until = Time::never();
    const std::string count = left == 1 ? "1 rank is left" : fmt::format("{} ranks are left", left);
    actions_.emplace_back(
        Stop{.why = fmt::format("{}: {}, at least {} are needed", why, count, options_.least)});
    return;
  }
  ++state_.prepared;
  state_.until = now_ + options_.patience;
  for (Member& member : state_.members) member.ready = false;
  actions_.emplace_back(Prepare{.epoch = state_.prepared, .why = why});
}

void Decider::commit_if_ready() {
  if (!std::ranges::all_of(state_.members, &Member::ready)) return;
  state_.epoch = state_.prepared;
  state_.until = Time::never();
  Commit commit{.epoch = state_.epoch, .members = {}};
  for (Member& member : state_.members) {
    member.ready = false;
    commit.members.push_back(member.uuid);
  }
  actions_.emplace_back(std::move(commit));
}

}  // namespace

State begin(const std::vector<MemberUuid>& members) {
  State state;
  for (const MemberUuid& uuid : members) state.members.push_back({.uuid = uuid});
  return state;
}

Decision decide(Time now, State state, const Event& event, const Options& options) {
  if (state.stopped) return {std::move(state), {}};
  Decider decider(now, std::move(state), options);
  std::visit([&](const auto& happened) { decider.on(happened); }, event);
  return decider.take();
}

}  // namespace corro::coord
