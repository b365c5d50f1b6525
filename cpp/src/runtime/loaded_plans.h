// LoadedPlans: the plans that are loaded on one group.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "runtime/loaded_plan.h"

namespace corro::runtime {

/// Loop-confined, but for has_news().
class LoadedPlans {
 public:
  LoadedPlans(const GroupFacts& facts, EngineParts& parts, MakeFabric make_fabric)
      : facts_(facts), parts_(parts), make_fabric_(std::move(make_fabric)) {}

  /// See LoadedPlan::load(). Members load the same plans in the same order.
  [[nodiscard]] Result<LoadedPlan*> load(const graph::Plan& plan, const LoadOptions& options) {
    const uint64_t hash = graph::hash_of(plan);
    const uint64_t run = runs_[hash]++;
    const LaneKey key = derive_key(facts_.key, fmt::format("plan {:016x} run {}", hash, run));
    CORRO_ASSIGN(auto loaded, LoadedPlan::load(plan, key, facts_, parts_, make_fabric_, options));
    plans_.push_back(std::move(loaded));
    return plans_.back().get();
  }
  void erase(const LoadedPlan& plan) {
    std::erase_if(plans_, [&plan](const auto& one) { return one.get() == &plan; });
  }

  [[nodiscard]] bool empty() const { return plans_.empty(); }
  [[nodiscard]] bool has_news() const {
    return std::any_of(plans_.begin(), plans_.end(),
                       [](const auto& plan) { return plan->has_news(); });
  }
  bool poll(Time now) {
    bool moved = false;
    for (const auto& plan : plans_) moved = plan->poll(now) || moved;
    return moved;
  }
  void hear(MemberId from, const wire::Control& control, Time now) {
    for (const auto& plan : plans_) plan->hear(from, control, now);
  }
  void judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature) {
    for (const auto& plan : plans_) plan->judge(from, key, signature);
  }
  void fail(const Status& cause, Time now) {
    for (const auto& plan : plans_) plan->fail(cause, now);
  }
  void check(Time now) {
    for (const auto& plan : plans_) plan->check(now);
  }
  [[nodiscard]] Time next_deadline() const {
    Time earliest = Time::never();
    for (const auto& plan : plans_) earliest = std::min(earliest, plan->next_deadline());
    return earliest;
  }
  /// The first member that has left and that something in flight waits for, or -1.
  [[nodiscard]] MemberId awaited_that_left() const {
    for (const auto& plan : plans_) {
      if (const MemberId left = plan->awaited_that_left(); left >= 0) return left;
    }
    return -1;
  }

 private:
  const GroupFacts& facts_;
  EngineParts& parts_;
  MakeFabric make_fabric_;
  std::map<uint64_t, uint64_t> runs_;  ///< How often each plan was loaded, by its hash.
  std::vector<std::unique_ptr<LoadedPlan>> plans_;
};

}  // namespace corro::runtime
