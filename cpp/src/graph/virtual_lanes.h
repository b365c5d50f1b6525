// VirtualLanes: the plan's lanes in virtual time. The executor that runs on them is the one that
// runs for real.
//
//   VirtualLanes lanes(plan, {.seed = 1});
//   CORRO_ASSIGN(auto executor, Executor::create(plan, lanes.lanes()));
//   executor->run_until(8);
//   const Time end = lanes.run(*executor);   // all that can happen has happened
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/executor.h"
#include "graph/lane.h"
#include "graph/plan.h"

namespace corro::graph {

/// A firing as the virtual lanes saw it.
struct VirtualFiring {
  std::string_view name;
  Generation generation;
  Ticket ticket;
  Time start;
  Time end;
};

struct VirtualOptions {
  uint64_t seed = 0;  ///< Orders the completions of one instant.
  double jitter = 0;  ///< A firing takes its duration times 1 ± jitter, drawn from the seed.
  /// Says how a firing ends, for injected faults; OK when empty.
  std::function<Status(const VirtualFiring&)> outcome = {};
  /// Sees every firing as it ends.
  std::function<void(const VirtualFiring&)> observer = {};
};

/// Runs a firing for the duration its plan predicts; never calls launches. All completions of one
/// instant are delivered before anything fires, so their order cannot change what fires.
/// Loop-confined.
class VirtualLanes final {
 public:
  explicit VirtualLanes(const Plan& plan, VirtualOptions options = {});

  /// One for each lane of the plan, for Executor::create.
  [[nodiscard]] std::vector<Lane*> lanes();
  /// Polls and delivers completions until nothing is in flight and nothing can fire; returns the
  /// time of the last completion.
  Time run(Executor& executor);
  [[nodiscard]] Time now() const { return now_; }

 private:
  struct VirtualLane final : Lane {
    explicit VirtualLane(VirtualLanes& owner) : owner_(&owner) {}
    void start(Time now, const Work& work) override { owner_->begin(now, work); }
    VirtualLanes* owner_;
  };

  void begin(Time now, const Work& work);

  VirtualOptions options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<VirtualLane>> lanes_;
  std::vector<VirtualFiring> running_;
  Time now_;
};

}  // namespace corro::graph
