// LoadedPlans: the plans that are loaded on one group. What the group hears, checks or fails with
// goes to each of them; a plan finds out itself whether it is meant.
//
// Members load the same plans in the same order, so all count alike how often each plan was loaded.
// That count and a hash of the plan give its key, without a word between ranks. The count goes up
// when a load fails, too: a rank that had no memory stays in step with those that had.
#pragma once

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

  /// See PlanPart::make().
  [[nodiscard]] Result<LoadedPlan*> load(const graph::Plan& plan, const LoadOptions& options);
  void erase(const LoadedPlan& plan);

  [[nodiscard]] bool empty() const { return plans_.empty(); }
  [[nodiscard]] bool has_news() const;
  bool poll(Time now);
  void hear(MemberId from, const wire::Control& control, Time now);
  void judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature);
  void fail(const Status& cause, Time now);
  void check(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// See LoadedPlan.
  void check_departed(Time now);

 private:
  const GroupFacts& facts_;
  EngineParts& parts_;
  MakeFabric make_fabric_;
  std::map<uint64_t, uint64_t> runs_;  ///< How often each plan was loaded, by its hash.
  std::vector<std::unique_ptr<LoadedPlan>> plans_;
};

}  // namespace corro::runtime
