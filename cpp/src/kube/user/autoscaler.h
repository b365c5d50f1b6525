// Autoscaler: looks at an elastic CorroJob now and then, and says how many pods it should have, by
// the policy of coord/autoscaling.h. `corro autoscale` asks it; nothing else changes a job by
// itself.
//
//   rates     of the job's status: steps a second, each while the same ranks did ten steps or more.
//             Where each rank has its own batch, the throughput is that times the ranks
//   refusal   the job has had fewer pods than it is to have for 30 s: the cluster has no more now
#pragma once

#include <optional>
#include <string>

#include "coord/autoscaling.h"
#include "kube/client/json.h"

namespace corro::kube {

struct AutoscalerOptions {
  double least_gain = 0.5;        ///< The price of a worker (coord/autoscaling.h).
  bool has_global_batch = false;  ///< More ranks make no more samples of a step.
};

/// Pure but for what it remembers. Externally synchronized.
class Autoscaler {
 public:
  explicit Autoscaler(AutoscalerOptions options) : options_(options) {}

  /// Takes the job as it is now; returns what to ask for if that is another number of pods.
  /// FAILED_PRECONDITION if the job is not elastic.
  [[nodiscard]] Result<std::optional<coord::Sizing>> look(const Json& job, Time now);

 private:
  struct Facts {
    size_t target = 0, least = 0, most = 0, slots = 1;
    size_t ranks = 0, epoch = 0;
    double step = 0, rate = 0;
  };
  [[nodiscard]] static Result<Facts> read(const Json& job);
  void note_rate(const Facts& facts, Time now);
  void note_refusal(const Facts& facts, Time now);

  const AutoscalerOptions options_;
  coord::RateHistory history_;
  std::optional<Facts> last_;
  double sampled_step_ = 0;           ///< Of the last rate that counts.
  Time since_{};                      ///< Of this number of workers.
  Time lacks_since_ = Time::never();  ///< So long it has had fewer than it is to have.
  std::optional<coord::Refusal> refusal_;
};

}  // namespace corro::kube
