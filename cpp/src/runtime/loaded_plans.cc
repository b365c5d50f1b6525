#include "runtime/loaded_plans.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::runtime {

Result<LoadedPlan*> LoadedPlans::load(const graph::Plan& plan, const LoadOptions& options) {
  const uint64_t hash = graph::hash_of(plan);
  const uint64_t run = runs_[hash]++;
  const LaneKey key = derive_key(facts_.key, fmt::format("plan {:016x} run {}", hash, run));
  CORRO_ASSIGN(auto part, PlanPart::make(plan, key, facts_, parts_, make_fabric_, options));
  plans_.push_back(std::make_unique<LoadedPlan>(std::move(part), facts_, parts_));
  return plans_.back().get();
}

void LoadedPlans::erase(const LoadedPlan& plan) {
  std::erase_if(plans_, [&plan](const auto& one) { return one.get() == &plan; });
}

bool LoadedPlans::has_news() const {
  return std::any_of(plans_.begin(), plans_.end(),
                     [](const auto& plan) { return plan->has_news(); });
}

bool LoadedPlans::poll(Time now) {
  bool moved = false;
  for (const auto& plan : plans_) moved = plan->poll(now) || moved;
  return moved;
}

void LoadedPlans::hear(MemberId from, const wire::Control& control, Time now) {
  for (const auto& plan : plans_) plan->hear(from, control, now);
}

void LoadedPlans::judge(MemberId from, const transport::MessageKey& key,
                        const SignatureBits& signature) {
  for (const auto& plan : plans_) plan->judge(from, key, signature);
}

void LoadedPlans::fail(const Status& cause, Time now) {
  for (const auto& plan : plans_) plan->fail(cause, now);
}

void LoadedPlans::check(Time now) {
  for (const auto& plan : plans_) plan->check(now);
}

Time LoadedPlans::next_deadline() const {
  Time earliest = Time::never();
  for (const auto& plan : plans_) earliest = std::min(earliest, plan->next_deadline());
  return earliest;
}

void LoadedPlans::check_departed(Time now) {
  for (const auto& plan : plans_) plan->check_departed(now);
}

}  // namespace corro::runtime
