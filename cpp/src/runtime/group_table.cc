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

Status GroupTable::start_epoch(uint32_t epoch, std::vector<MemberId> members, const Status& cause) {
  const Time now{};
  for (const auto& group : groups_) group->fail({cause, -1}, Group::News::kHeard, now);
  if (world_ != nullptr) ended_worlds_.push_back(world_);
  forget_ended_worlds();
  // Who is there already speaks of the new epoch.
  std::erase_if(early_, [epoch](const auto& one) { return one.first.epoch < epoch; });
  kept_early_ = 0;
  for (const auto& [key, early] : early_) kept_early_ += early.said.size();
  asked_.clear();
  epoch_ = epoch;
  members_ = std::move(members);
  std::vector<int32_t> everyone(members_.size());
  for (size_t r = 0; r < everyone.size(); ++r) everyone[r] = static_cast<int32_t>(r);
  CORRO_ASSIGN(world_, open(derive_key({.epoch = epoch}, "world"), "", everyone));
  return {};
}

Result<Group*> GroupTable::create(const std::string& name,
                                  const std::vector<int32_t>& world_ranks) {
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
              world_ranks);
}

Result<Group*> GroupTable::open(LaneKey key, std::string name,
                                const std::vector<int32_t>& world_ranks) {
  free_quiet_fabrics();
  GroupFacts facts{.key = key, .name = std::move(name), .members = {}, .world_ranks = world_ranks};
  for (const int32_t r : world_ranks) facts.members.push_back(members_[static_cast<size_t>(r)]);
  facts.rank = facts.index_of(parts_.peers.own());
  auto group = std::make_unique<Group>(std::move(facts), parts_);
  CORRO_TRY(group->open());
  Group* made = group.get();
  groups_.push_back(std::move(group));
  add_keys(*made, made->keys());
  for (const MemberId member : made->facts().members) {
    if (!parts_.peers.how_lost(member).empty()) made->lose(member, Time{});
  }
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
  std::erase_if(groups_, [&group](const auto& one) { return one.get() == &group; });
}

void GroupTable::forget_keys(const std::vector<LaneKey>& keys) {
  for (const LaneKey& key : keys) {
    by_key_.erase(key);
    if (closed_.size() < kMostClosed) closed_.emplace_back();
    closed_[next_closed_++ % kMostClosed] = key;
  }
}

void GroupTable::add_keys(Group& group, const std::vector<LaneKey>& keys) {
  for (const LaneKey& key : keys) by_key_.emplace(key, &group);
}

void GroupTable::unload(Group& group, LoadedPlan& plan) {
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

void GroupTable::free_quiet_fabrics() {
  std::erase_if(quiet_, [this](const Quiet& quiet) {
    return quiet.fabric->leave([&](int32_t world_rank) {
      const MemberId member = quiet.members.at(world_rank);
      return member != parts_.peers.own() && !parts_.peers.present(member);
    });
  });
}

Group* GroupTable::find(const LaneKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
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

GroupTable::Early GroupTable::take_early(const std::vector<LaneKey>& keys) {
  Early all;
  for (const LaneKey& key : keys) {
    auto node = early_.extract(key);
    if (node.empty()) continue;
    Early& one = node.mapped();
    kept_early_ -= one.said.size();
    all.said.insert(all.said.end(), std::make_move_iterator(one.said.begin()),
                    std::make_move_iterator(one.said.end()));
    if (one.too_much_from >= 0) all.too_much_from = one.too_much_from;
  }
  return all;
}

}  // namespace corro::runtime
