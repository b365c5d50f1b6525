#include "plan/report/timeline.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/search/plan_graph.h"

namespace corro::plan {
namespace {

constexpr uint32_t kMostChunks = 64;
constexpr uint32_t kMostOfGPipe = 256;  ///< Micro-batches of which all forward is drawn.
constexpr uint32_t kWholePieces = 24;   ///< Of a stage: as many fit beside each other.

bool is_interleaved(const JobShape& shape) {
  return shape.schedule == Schedule::kInterleaved && shape.chunks > 1 && shape.pipeline > 1 &&
         shape.micro_batches % shape.pipeline == 0;
}

uint32_t chunks_of(const JobShape& shape) { return is_interleaved(shape) ? shape.chunks : 1; }

uint32_t warmup_of(const JobShape& shape, uint32_t stage) {
  const uint32_t all = shape.micro_batches * chunks_of(shape);
  const uint32_t behind = shape.pipeline - stage - 1;
  if (shape.schedule == Schedule::kGPipe) return all;
  if (!is_interleaved(shape)) return std::min(behind, all);
  if (shape.micro_batches == shape.pipeline) return all;
  return std::min(2 * behind + (shape.chunks - 1) * shape.pipeline, all);
}

/// Piece number `k` of a stage: its chunks take turns, each for as many micro-batches as there are
/// stages.
Turn piece_of(const JobShape& shape, Work work, uint32_t k) {
  if (!is_interleaved(shape)) return {work, 0, k};
  const uint32_t round = shape.pipeline * shape.chunks;
  const uint32_t chunk = (k % round) / shape.pipeline;
  return {work, work == Work::kForward ? chunk : shape.chunks - 1 - chunk,
          k / round * shape.pipeline + k % shape.pipeline};
}

/// Lets stages work until all have done all their turns.
class Simulation {
 public:
  Simulation(const Candidate& candidate, const JobShape& shape)
      : stages_(candidate.stages), shape_(shape), chunks_(chunks_of(shape)) {
    const size_t pieces = size_t{shape.pipeline} * chunks_ * shape.micro_batches;
    for (auto& ends : ends_) ends.resize(pieces);
    for (uint32_t s = 0; s < shape.pipeline; ++s) turns_.push_back(turns_of(shape, s));
    next_.resize(shape.pipeline);
    free_.resize(shape.pipeline);
  }

  std::vector<Block> run() {
    // Forward goes up the stages and backward down: a sweep each way lets both go far.
    for (bool went = true; went;) {
      went = false;
      for (uint32_t s = 0; s < shape_.pipeline; ++s) went = work(s) || went;
      for (uint32_t s = shape_.pipeline; s-- > 0;) went = work(s) || went;
    }
    return std::move(blocks_);
  }

 private:
  std::optional<double>& end_of(Work work, uint32_t stage, uint32_t chunk, uint32_t micro_batch) {
    const size_t place = (size_t{stage} * chunks_ + chunk) * shape_.micro_batches + micro_batch;
    return ends_[static_cast<size_t>(work)][place];
  }

  /// When what a piece needs is there; nothing if that is not known yet.
  std::optional<double> ready(uint32_t stage, const Turn& turn) {
    const uint32_t last = shape_.pipeline - 1;
    if (turn.work == Work::kForward) {
      if (stage > 0) return end_of(turn.work, stage - 1, turn.chunk, turn.micro_batch);
      if (turn.chunk == 0) return 0;
      return end_of(turn.work, last, turn.chunk - 1, turn.micro_batch);
    }
    if (stage < last) return end_of(turn.work, stage + 1, turn.chunk, turn.micro_batch);
    if (turn.chunk + 1 < chunks_) return end_of(turn.work, 0, turn.chunk + 1, turn.micro_batch);
    return end_of(Work::kForward, stage, turn.chunk, turn.micro_batch);
  }

  [[nodiscard]] double seconds_of(uint32_t stage, Work work) const {
    const StageEstimate& e = stages_[stage].estimate;
    const double own = work == Work::kForward ? e.forward : e.backward + e.recompute;
    return (own + (e.hops + e.weights) / 2) / chunks_;
  }

  bool work(uint32_t stage) {
    bool went = false;
    for (; next_[stage] < turns_[stage].size(); went = true) {
      const Turn& turn = turns_[stage][next_[stage]];
      const std::optional<double> there = ready(stage, turn);
      if (!there) break;
      const double start = std::max(*there, free_[stage]);
      const double end = start + seconds_of(stage, turn.work);
      blocks_.push_back({stage, turn.work, turn.chunk, turn.micro_batch, start, end});
      end_of(turn.work, stage, turn.chunk, turn.micro_batch) = end;
      free_[stage] = end;
      ++next_[stage];
    }
    return went;
  }

  const std::vector<PlannedStage>& stages_;
  JobShape shape_;
  uint32_t chunks_;
  std::vector<std::vector<Turn>> turns_ = {};
  std::vector<size_t> next_ = {};
  std::vector<double> free_ = {};
  std::vector<std::optional<double>> ends_[2] = {};
  std::vector<Block> blocks_ = {};
};

/// Virtual time counts nanoseconds, in 64 bits.
bool fits_virtual_time(const Candidate& candidate, uint32_t micro_batches) {
  constexpr double kMostSeconds = 1e9;
  double seconds = 0;
  for (const PlannedStage& stage : candidate.stages) seconds += stage.estimate.period();
  return seconds * micro_batches < kMostSeconds;
}

/// Zero bubble's; empty for a graph that would stand still, and for times of decades.
std::vector<Block> fire(const Candidate& candidate, uint32_t micro_batches) {
  constexpr Work kWorks[] = {Work::kForward, Work::kBackward, Work::kWeightGradients};
  std::vector<Block> blocks;
  if (!fits_virtual_time(candidate, micro_batches)) return blocks;
  const auto firings = firings_of(candidate, micro_batches);
  if (!firings.ok()) return blocks;
  for (const Firing& firing : *firings) {
    blocks.push_back({.stage = firing.stage,
                      .work = kWorks[static_cast<size_t>(firing.kind)],
                      .micro_batch = firing.micro_batch,
                      .start = firing.start,
                      .end = firing.end});
  }
  return blocks;
}

void add_step_end(const Candidate& candidate, Timeline& timeline) {
  std::vector<double> ends(candidate.stages.size());
  for (const Block& block : timeline.blocks) {
    ends[block.stage] = std::max(ends[block.stage], block.end);
  }
  for (uint32_t s = 0; s < ends.size(); ++s) {
    const StageEstimate& estimate = candidate.stages[s].estimate;
    const double synced = ends[s] + estimate.sync;
    const double updated = synced + estimate.update;
    if (estimate.sync > 0) timeline.blocks.push_back({s, Work::kSync, 0, 0, ends[s], synced});
    if (estimate.update > 0) timeline.blocks.push_back({s, Work::kUpdate, 0, 0, synced, updated});
    timeline.end = std::max(timeline.end, updated);
  }
}

/// The end of the pipeline's filling and of some rounds after it, on stage 0.
double end_of_first_part(const Timeline& timeline, uint32_t pieces) {
  double end = 0;
  for (const Block& block : timeline.blocks) {
    if (block.stage == 0 && pieces > 0) {
      end = block.end;
      --pieces;
    }
  }
  return end;
}

double start_of_backward(const Timeline& timeline) {
  double start = timeline.end;
  for (const Block& block : timeline.blocks) {
    if (block.work == Work::kBackward) start = std::min(start, block.start);
  }
  return start;
}

}  // namespace

std::vector<Turn> turns_of(const JobShape& shape, uint32_t stage) {
  const uint32_t all = shape.micro_batches * chunks_of(shape);
  const uint32_t warmup = warmup_of(shape, stage);
  std::vector<Turn> turns;
  for (uint32_t k = 0; k < warmup; ++k) turns.push_back(piece_of(shape, Work::kForward, k));
  for (uint32_t k = 0; k < all; ++k) {
    if (warmup + k < all) turns.push_back(piece_of(shape, Work::kForward, warmup + k));
    turns.push_back(piece_of(shape, Work::kBackward, k));
  }
  return turns;
}

Timeline timeline_of(const Candidate& candidate) {
  JobShape shape = candidate.shape;
  if (shape.pipeline > kMostDrawnStages || shape.chunks > kMostChunks) return {};
  if (candidate.stages.size() != shape.pipeline || shape.micro_batches == 0) return {};
  // What comes later looks like what is shown; a multiple of the stages, for the interleaved order.
  // GPipe's backward comes after all forward, of however many micro-batches.
  const bool is_gpipe = shape.schedule == Schedule::kGPipe;
  const uint32_t most = is_gpipe ? kMostOfGPipe : 4 * std::max(shape.pipeline, 8U);
  const bool is_cut = shape.micro_batches > most;
  if (is_cut) shape.micro_batches = most - most % shape.pipeline;
  const bool splits = shape.schedule == Schedule::kZeroBubble;
  Timeline timeline{.blocks = splits ? fire(candidate, shape.micro_batches)
                                     : Simulation(candidate, shape).run()};
  if (timeline.blocks.empty()) return {};
  const uint32_t pieces = shape.micro_batches * chunks_of(shape);
  timeline.is_whole = !is_cut && pieces <= kWholePieces;
  if (timeline.is_whole) {
    add_step_end(candidate, timeline);
  } else {
    uint32_t shown = std::max(kWholePieces, warmup_of(shape, 0) + kWholePieces / 2);
    if (splits) shown = shown * 3 / 2;  // Each backward is two pieces.
    timeline.end = end_of_first_part(timeline, shown);
    if (is_gpipe && is_cut) timeline.end = start_of_backward(timeline);
    std::erase_if(timeline.blocks, [&](const Block& block) { return block.start >= timeline.end; });
  }
  return timeline;
}

}  // namespace corro::plan
