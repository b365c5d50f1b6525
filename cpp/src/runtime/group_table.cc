#include "runtime/group_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

constexpr size_t kMostEarlyMessages = 4096;
constexpr size_t kMostClosed = 1024;

/// By world rank.
std::map<int32_t, MemberId> members_of(const GroupFacts& facts) {
  std::map<int32_t, MemberId> members;
  for (int32_t r = 0; r < facts.size(); ++r) members[facts.world_rank(r)] = facts.member(r);
  return members;
}

}  // namespace

Status GroupTable::start_epoch(uint32_t epoch, std::vector<MemberId> members, Time now) {
  const Status cause(Code::kCancelled,
                     fmt::format("epoch {} is over: its groups end with it", epoch_));
  // At time zero: nobody waits for verdicts of an epoch that is over.
  for (const auto& group : groups_) group->fail({cause, -1}, Group::News::kHeard, Time{});
  if (world_ != nullptr) ended_worlds_.push_back(world_);
  forget_ended_worlds();
  // Who is there already speaks of the new epoch.
  std::erase_if(early_, [epoch](const auto& one) { return one.first.epoch < epoch; });
  kept_early_ = 0;
  for (const auto& [key, early] : early_) kept_early_ += early.said.size();
  asked_.clear();
  epoch_ = epoch;
  members_ = std::move(members);
  parts_.metrics.set(obs::Metric::kRanks, members_.size());
  std::vector<int32_t> everyone(members_.size());
  for (size_t r = 0; r < everyone.size(); ++r) everyone[r] = static_cast<int32_t>(r);
  CORRO_ASSIGN(world_, open(derive_key({.epoch = epoch}, "world"), "", everyone, now));
  return {};
}

Result<Group*> GroupTable::create(const std::string& name, const std::vector<int32_t>& world_ranks,
                                  Time now) {
  const std::string identity = name.empty() ? fmt::format("members {}", fmt::join(world_ranks, ","))
                                            : fmt::format("name {}", name);
  const uint64_t before = asked_[identity]++;
  std::vector<int32_t> sorted = world_ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool unique = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const auto size = static_cast<int32_t>(members_.size());
  if (sorted.empty() || !unique || sorted.front() < 0 || sorted.back() >= size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a group needs distinct ranks between 0 and {}, got [{}]", size - 1,
                              fmt::join(world_ranks, ", ")));
  }
  if (std::find(world_ranks.begin(), world_ranks.end(), world_->facts().rank) == world_ranks.end())
    return static_cast<Group*>(nullptr);
  return open(derive_key({.epoch = epoch_}, fmt::format("group {} #{}", identity, before)), name,
              world_ranks, now);
}

Result<Group*> GroupTable::open(LaneKey key, std::string name,
                                const std::vector<int32_t>& world_ranks, Time now) {
  free_quiet_fabrics();
  GroupFacts facts{.key = key, .name = std::move(name), .members = {}, .world_ranks = world_ranks};
  for (const int32_t r : world_ranks) facts.members.push_back(members_[static_cast<size_t>(r)]);
  facts.rank = facts.index_of(parts_.peers.own());
  auto group = std::make_unique<Group>(std::move(facts), parts_);
  CORRO_TRY(group->open());
  Group* made = group.get();
  groups_.push_back(std::move(group));
  parts_.metrics.set(obs::Metric::kGroups, groups_.size());
  for (const MemberId member : made->facts().members) {
    if (!parts_.peers.how_lost(member).empty()) made->lose(member, Time{});
  }
  add_keys(*made, made->keys(), now);
  return made;
}

Status GroupTable::destroy(Group& group) {
  CORRO_CHECK(&group != world_, "the world cannot be destroyed");
  if (group.busy()) {
    return {Code::kFailedPrecondition,
            "a group cannot be destroyed while it has operations in flight or a plan loaded"};
  }
  forget(group);
  free_quiet_fabrics();
  return {};
}

void GroupTable::forget(Group& group) {
  forget_keys(group.keys());
  const auto members = members_of(group.facts());
  for (auto& fabric : group.take_fabrics()) quiet_.push_back({std::move(fabric), members});
  std::erase(active_, &group);
  std::erase_if(groups_, [&group](const auto& one) { return one.get() == &group; });
  parts_.metrics.set(obs::Metric::kGroups, groups_.size());
}

void GroupTable::forget_keys(const std::vector<LaneKey>& keys) {
  for (const LaneKey& key : keys) {
    by_key_.erase(key);
    if (closed_.size() < kMostClosed) closed_.emplace_back();
    closed_[next_closed_++ % kMostClosed] = key;
  }
}

Result<LoadedPlan*> GroupTable::load(Group& group, const graph::Plan& plan,
                                     const LoadOptions& options, Time now) {
  CORRO_TRY(group.failure());
  CORRO_ASSIGN(LoadedPlan * loaded, group.plans().load(plan, options));
  parts_.metrics.set(obs::Metric::kPlans, ++plans_);
  activate(group);
  add_keys(group, loaded->part().keys(), now);
  return loaded;
}

void GroupTable::unload(Group& group, LoadedPlan& plan, Time now) {
  if (!plan.idle())
    plan.stop({Code::kCancelled, "the plan was unloaded while services were in flight"}, now);
  parts_.metrics.set(obs::Metric::kPlans, --plans_);
  forget_keys(plan.part().keys());
  for (auto& rest : plan.part().take_rests())
    quiet_.push_back({std::move(rest.fabric), members_of(rest.facts)});
  group.plans().erase(plan);
  forget_ended_worlds();
  free_quiet_fabrics();
}

void GroupTable::forget_ended_worlds() {
  std::erase_if(ended_worlds_, [this](Group* world) {
    if (world->busy()) return false;
    forget(*world);
    return true;
  });
}

/// Frees the memory of destroyed groups that no other member reads any more.
void GroupTable::free_quiet_fabrics() {
  std::erase_if(quiet_, [this](const Quiet& quiet) {
    return quiet.fabric->leave([&](int32_t world_rank) {
      const MemberId member = quiet.members.at(world_rank);
      return member != parts_.peers.own() && !parts_.peers.present(member);
    });
  });
}

// -- what members say -----------------------------------------------------------------------------

Group* GroupTable::find(const LaneKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

void GroupTable::hear(const PeerEvent& event, Time now) {
  if (const auto* said = std::get_if<PeerSaid>(&event)) {
    Group* group = find(said->control.lane);
    if (group == nullptr) return keep_early(*said);
    activate(*group);
    group->hear(said->from, said->control, now);
  } else if (const auto* stray = std::get_if<PeerStray>(&event)) {
    Group* group = find(stray->key.lane);
    if (group == nullptr) return;
    activate(*group);
    group->judge(stray->from, stray->key, stray->signature);
  } else if (const auto* lost = std::get_if<PeerLost>(&event)) {
    parts_.metrics.add(obs::Metric::kRanksLost);
    for (const auto& group : groups_) {
      if (group->facts().index_of(lost->member) < 0) continue;
      activate(*group);
      group->lose(lost->member, now);
    }
    free_quiet_fabrics();
  }
}

void GroupTable::keep_early(const PeerSaid& said) {
  const LaneKey& key = said.control.lane;
  if (std::find(closed_.begin(), closed_.end(), key) != closed_.end()) return;
  if (kept_early_ < kMostEarlyMessages) {
    early_[key].said.push_back(said);
    ++kept_early_;
  } else if (early_.size() < kMostEarlyMessages) {
    early_[key].too_much_from = said.from;
  }
}

/// Others speak of the group by these keys. It hears what they have said before it was made.
void GroupTable::add_keys(Group& group, const std::vector<LaneKey>& keys, Time now) {
  MemberId too_much_from = -1;
  for (const LaneKey& key : keys) {
    by_key_.emplace(key, &group);
    const auto early = early_.extract(key);
    if (early.empty()) continue;
    activate(group);
    kept_early_ -= early.mapped().said.size();
    for (const PeerSaid& said : early.mapped().said) group.hear(said.from, said.control, now);
    if (early.mapped().too_much_from >= 0) too_much_from = early.mapped().too_much_from;
  }
  if (too_much_from < 0) return;
  const int32_t who = group.facts().world_rank(group.facts().index_of(too_much_from));
  group.fail({{Code::kResourceExhausted,
               fmt::format("rank {} said more of this group than is kept until it is made on "
                           "rank {}",
                           who, group.facts().own_world_rank()),
               {.rank = who}},
              who},
             Group::News::kFound, now);
}

// -- progress -------------------------------------------------------------------------------------

void GroupTable::submit(Group& group, const std::shared_ptr<WorkState>& work, Time now) {
  activate(group);
  group.submit(work, now);
}

void GroupTable::activate(Group& group) {
  if (!group.set_active(true)) active_.push_back(&group);
}

bool GroupTable::poll(Time now) {
  bool moved = false;
  for (Group* group : active_) moved = group->poll(now) || moved;
  std::erase_if(active_, [](Group* group) {
    if (group->busy()) return false;
    (void)group->set_active(false);
    return true;
  });
  return moved;
}

bool GroupTable::poll_with(MemberId member, Time now) {
  bool moved = false;
  for (Group* group : active_) {
    if (group->facts().index_of(member) >= 0) moved = group->poll(now) || moved;
  }
  return moved;
}

void GroupTable::check_departed(Time now) {
  for (Group* group : active_) group->check_departed(now);
}

void GroupTable::check(Time now) {
  for (Group* group : active_) group->check(now);
}

bool GroupTable::names_wait() const {
  return std::ranges::any_of(active_, [](const Group* group) { return group->listens(); });
}

bool GroupTable::waits_for_lines() const {
  return std::ranges::any_of(active_, [](const Group* group) { return group->waits_for_lines(); });
}

bool GroupTable::plans_have_news() const {
  return plans_ > 0 &&
         std::ranges::any_of(active_, [](Group* group) { return group->plans().has_news(); });
}

Time GroupTable::next_deadline() const {
  Time earliest = Time::never();
  for (const Group* group : active_) earliest = std::min(earliest, group->next_deadline());
  return earliest;
}

}  // namespace corro::runtime
