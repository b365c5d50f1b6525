// Which layers of a stage compute again in backward, and whose activations move to host memory.
//
// How many move is a number k. With it given, the others are a choice under a memory limit
// (plan/solve/memory_choice.h), whose linear program is convex in k, since layers and room are
// linear in k; and what moving shows is convex, too. So the sum of the two is below what any k
// takes, and convex, and few k have to be tried around its least (plan/solve/convex_search.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/cost/step_cost.h"
#include "plan/solve/convex_search.h"

namespace corro::plan {
namespace {

constexpr double kDoesNotFit = std::numeric_limits<double>::infinity();
constexpr auto kOnDevice = static_cast<size_t>(Recompute::kOffload);  ///< Ways before it.

/// One stage's question. Loop-confined.
class StageChoice {
 public:
  StageChoice(const StageCoster& costs, const LayerRange& layers, uint32_t from_end, double limit)
      : costs_(costs), flight_(costs.in_flight(from_end)), layers_(costs.runs()) {
    for (uint32_t run = 0; run < costs.runs(); ++run) {
      const LayerCost& cost = costs.layer(run);
      const uint32_t n = costs.count(layers, run);
      layers_[run] = n;
      work_ += n * (cost.forward + cost.backward);
      if (n * cost.kept[0] > layers_[moving_] * costs.layer(moving_).kept[0]) moving_ = run;
    }
    there_ = layers_[moving_];
    room_ = limit - costs.fixed_memory(layers).sum();
    states_ = costs.states_seconds(layers);
  }

  /// Seconds of recomputing and of moving `moved` layers, beside weights and gradients that move
  /// anyway; kDoesNotFit.
  double added(uint32_t moved) {
    leave(moved);
    double all = 0;        // Bytes kept if nothing is recomputed,
    double transient = 0;  // what a layer that goes backward needs beside it,
    double again = 0;      // and if all is recomputed that can be.
    for (uint32_t run = 0; run < layers_.size(); ++run) {
      const uint32_t n = layers_[run];
      const uint32_t moving = run == moving_ ? moved : 0;
      if (n + moving == 0) continue;
      const double kept = costs_.layer(run).kept[0];
      const double least = least_kept(run);
      // Two layers' activations are on their way.
      const double needed = costs_.layer(run).gradient + (moving > 0 ? 2 * kept : 0);
      const double needed_again =
          std::max(needed, costs_.layer(run).gradient + (n > 0 ? kept - least : 0));
      all += n * kept * flight_;
      transient = std::max(needed, transient - costs_.freed(n * kept));
      again = std::max(needed_again, again - costs_.freed(n * least));
    }
    keeps_all_ = all + transient <= room_;
    if (keeps_all_) return shown(moved);
    if (!costs_.ways().choose(layers_, (room_ - again) / flight_, kept_)) return kDoesNotFit;
    return shown(moved) + kept_.time;
  }

  /// No more than added(), and convex in `moved` from 1 on.
  double bound(uint32_t moved) {
    leave(moved);
    return shown(moved) + costs_.ways().bound(layers_, room_ / flight_);
  }

  /// Layers that host memory has room for.
  [[nodiscard]] uint32_t most_moved(double host_room) const {
    const double each = costs_.layer(moving_).kept[0] * flight_;
    if (!(each > 0)) return 0;
    return static_cast<uint32_t>(
        std::min<double>(there_, std::floor(std::max(0.0, host_room) / each)));
  }

  /// `bound`: seconds that recomputing and moving take at least.
  [[nodiscard]] StageCoster::Choice choice(uint32_t moved, double bound) {
    StageCoster::Choice result{.recompute = RecomputeCounts(layers_.size()), .added = added(moved)};
    result.bound = work_ + std::min(bound, result.added);
    for (uint32_t run = 0; run < layers_.size(); ++run) {
      auto& counts = result.recompute[run];
      if (run == moving_) counts.back() = moved;
      counts[0] = layers_[run];
      if (keeps_all_) continue;
      const auto chosen =
          kept_.counts.begin() + static_cast<ptrdiff_t>(costs_.ways().begin_of(run));
      std::copy_n(chosen, kOnDevice, counts.begin());
    }
    return result;
  }

 private:
  void leave(uint32_t moved) { layers_[moving_] = there_ - moved; }
  [[nodiscard]] double shown(uint32_t moved) const {
    if (moved == 0) return 0;
    return exposed(states_ + moved * costs_.offload_seconds(moving_), work_) -
           exposed(states_, work_);
  }
  [[nodiscard]] double least_kept(uint32_t run) const {
    const auto& kept = costs_.layer(run).kept;
    return *std::min_element(kept.begin(), kept.begin() + kOnDevice);
  }

  const StageCoster& costs_;
  double flight_;
  std::vector<uint32_t> layers_;  ///< By run, those that do not move.
  uint32_t moving_ = 0;  ///< The run whose layers may: the link is the busiest one's alone.
  uint32_t there_ = 0;   ///< Its layers.
  double work_ = 0;
  double room_ = 0;             ///< Bytes for activations.
  double states_ = 0;           ///< Seconds of the link for gradients and weights.
  MemoryOptions::Choice kept_;  ///< Of the last added(), unless all is kept.
  bool keeps_all_ = false;
};

}  // namespace

std::optional<StageCoster::Choice> StageCoster::choose(const LayerRange& layers, uint32_t from_end,
                                                       double limit, bool offloads) const {
  const double host_room = host_limit() - host_states(layers);
  if (host_room < 0) return std::nullopt;
  StageChoice stage(*this, layers, from_end, limit);
  const double kept = stage.added(0);
  if (kept == 0) return stage.choice(0, 0);
  LeastValue moved{.at = {}, .value = kept};
  if (offloads && can_offload()) {
    moved = least_above_convex(
        1, stage.most_moved(host_room), kept, [&](uint32_t k) { return stage.bound(k); },
        [&](uint32_t k) { return stage.added(k); });
  }
  if (moved.value == kDoesNotFit) return std::nullopt;
  return stage.choice(moved.at.value_or(0), std::min(moved.bound, stage.bound(0)));
}

}  // namespace corro::plan
