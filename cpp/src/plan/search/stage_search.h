// The best stages of one shape, and what no stages of it can beat.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plan/search/decision.h"
#include "plan/search/fractions.h"
#include "plan/search/shapes.h"

namespace corro::plan {

inline constexpr double kInfeasible = std::numeric_limits<double>::infinity();

/// Externally synchronized: it keeps the costs of layers that it has computed.
class StageSearch {
 public:
  /// The request and the pools outlive it.
  StageSearch(const Request& request, const std::vector<Pool>& pools);

  /// Seconds of a step that no shape beats which differs from this one in schedule, sharding or
  /// offload alone; kInfeasible if none can be. `family` shards and offloads nothing.
  [[nodiscard]] double family_bound(const JobShape& family);
  /// Seconds of a step that no stages of this shape beat; kInfeasible if the shape cannot be.
  /// Cheap: all work divided evenly, nothing recomputed.
  [[nodiscard]] double quick_bound(const JobShape& shape);
  /// The same, tighter: stages may hold fractions of layers, and recompute what memory demands.
  [[nodiscard]] double fractional_bound(const JobShape& shape);

  struct Solved {
    std::optional<Candidate> best;  ///< Nothing if it does not fit, or takes `cut` or longer.
    double bound = 0;               ///< Seconds; what solving in parts may have left.
  };
  /// The best contiguous stages, if a step of them takes less than `cut` seconds.
  [[nodiscard]] Solved solve(const JobShape& shape, double cut = kInfeasible);
  /// These stages: first layers, ascending from 0. Nothing if they do not fit. One pool alone.
  [[nodiscard]] std::optional<Candidate> cost_of(const JobShape& shape,
                                                 const std::vector<uint32_t>& firsts);
  /// The same stages, each on the networks that its ranks get. Nothing if they then do not fit. One
  /// pool alone.
  [[nodiscard]] std::optional<Candidate> placed(const Candidate& candidate,
                                                const std::vector<AxisNetworks>& networks) const;
  /// The least bytes that the fullest device of this shape needs, recomputing everything; pools of
  /// one kind, stages of as many layers each.
  [[nodiscard]] double least_memory(const JobShape& shape);
  /// Bytes of host memory of each device, of the first pool, that are missing at least for what
  /// does not depend on micro-batches: some stage has a p-th of it.
  [[nodiscard]] double lacks_on_hosts(const JobShape& shape);
  /// Bytes of a device of the pool that may be used.
  [[nodiscard]] double limit_of(const Pool& pool) const;
  /// Stages costed by solve() since it was made.
  [[nodiscard]] uint64_t costed() const { return costed_; }
  /// Null if the shape cannot be on the pool.
  [[nodiscard]] const StageCoster* coster(const JobShape& shape, uint32_t pool);

 private:
  using Cut = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, bool, DType, uint32_t>;

  struct Stage {
    LayerRange layers;
    StageEstimate estimate;
    RecomputeCounts recompute;
  };
  [[nodiscard]] std::optional<Stage> stage_of(const StageCoster& costs, const LayerRange& layers,
                                              uint32_t from_end, double limit) const;
  /// The stage as the `place`-th of the pool.
  [[nodiscard]] PlannedStage planned(const Stage& stage, const JobShape& shape, uint32_t pool,
                                     uint32_t place) const;
  [[nodiscard]] double even_work(const JobShape& shape, double end);
  [[nodiscard]] bool offloads(const StageCoster& costs) const;
  [[nodiscard]] PoolOfFractions fractions_of(const StageCoster& costs, uint32_t run, uint32_t units,
                                             double limit) const;
  [[nodiscard]] double end_bound(const StageCoster& costs) const;
  void finish(Candidate& candidate, const StageCoster& costs) const;

  const Request& request_;
  const std::vector<Pool>& pools_;
  std::map<Cut, std::optional<StageCoster>> by_cut_;
  std::vector<std::optional<StageCoster>> shaped_;  ///< By pool, of the last shape.
  JobShape last_ = {};
  uint64_t costed_ = 0;
};

}  // namespace corro::plan
