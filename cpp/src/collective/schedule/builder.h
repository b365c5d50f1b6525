// Builder: what the algorithms write their steps with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"
#include "collective/schedule/patterns.h"
#include "collective/schedule/schedule.h"

namespace corro::collective {

/// Strands in flight where a pipeline is cut into several; more hide more latency and need more
/// scratch.
inline constexpr uint32_t kStrandWindow = 4;
/// Bounds the steps of a schedule: chunks grow beyond Problem::chunk_count rather than exceed it.
inline constexpr uint64_t kMaxStrands = 1024;

[[nodiscard]] inline Block input(Range range) { return {Buffer::kInput, range.begin, range.count}; }
[[nodiscard]] inline Block output(Range range) {
  return {Buffer::kOutput, range.begin, range.count};
}
/// A part of a block.
[[nodiscard]] inline Block part(Block block, uint64_t offset, uint64_t count) {
  return {block.buffer, block.offset + offset, count, block.owner};
}
/// Strands for a vector whose longest range is `longest`, so that no message is longer than a
/// chunk.
[[nodiscard]] inline uint32_t strands_for(const Problem& problem, uint64_t longest) {
  if (problem.chunk_count == 0 || longest == 0) return 1;
  const uint64_t wanted = (longest - 1) / problem.chunk_count + 1;
  return static_cast<uint32_t>(std::min(wanted, kMaxStrands));
}

/// Collects the steps of one rank, in order. Strands, rounds and messages may depend on everything
/// but the rank and in_place, so that every message has its counterpart: same peers, same strand,
/// same round.
class Builder {
 public:
  /// `rounds`: an upper bound for the rounds of a strand, equal on every rank.
  Builder(uint32_t strands, uint32_t rounds, uint32_t window = kStrandWindow) : rounds_(rounds) {
    schedule_.strands = strands;
    schedule_.strand_window = std::min(strands, window);
  }

  [[nodiscard]] uint32_t strands() const { return schedule_.strands; }

  /// Reserves scratch for the whole operation.
  [[nodiscard]] Block scratch(uint64_t count) {
    const Block block{Buffer::kScratch, schedule_.scratch_count, count};
    schedule_.scratch_count += count;
    return block;
  }
  /// Reserves scratch of `count` elements for each strand in flight; slot() then gives a strand's
  /// part of it.
  [[nodiscard]] Block scratch_per_strand(uint64_t count) {
    return scratch(count * schedule_.strand_window);
  }
  [[nodiscard]] Block slot(Block reserved, uint32_t strand) const {
    const uint64_t count = reserved.count / schedule_.strand_window;
    return part(reserved, strand % schedule_.strand_window * count, count);
  }

  /// Steps added next belong to this strand and round.
  void at(uint32_t strand, uint32_t round) {
    CORRO_CHECK(strand > strand_ || (strand == strand_ && round >= round_), strand, round);
    CORRO_CHECK(round < rounds_, round, rounds_);
    strand_ = strand;
    round_ = round;
  }
  void send(int32_t peer, Block from) { message(StepKind::kSend, peer).from = from; }
  void recv(int32_t peer, Block into) { message(StepKind::kRecv, peer).into = into; }
  void copy(Block from, Block into) {
    Step& step = add(StepKind::kCopy);
    step.from = from;
    step.into = into;
  }
  void fold(Block into, std::span<const Block> sources, bool final_fold) {
    Step& step = add(StepKind::kReduce);
    step.into = into;
    step.final_fold = final_fold;
    step.sources_begin = static_cast<uint32_t>(schedule_.sources.size());
    step.sources_count = static_cast<uint32_t>(sources.size());
    schedule_.sources.insert(schedule_.sources.end(), sources.begin(), sources.end());
  }

  /// Tells the ranks of this host that the strand is so far here.
  void mark(Mark mark) {
    Step& step = add(StepKind::kMark);
    step.mark = mark;
    step.tag = strand_ + 1;
  }
  /// Waits until a rank of this host has told so of the first `strands` strands.
  void await(int32_t peer, Mark mark, uint32_t strands) {
    Step& step = add(StepKind::kAwait);
    step.peer = peer;
    step.mark = mark;
    step.tag = strands;
  }
  /// Reserves `count` elements for each strand in flight, of every rank's stage.
  void reserve_stage(uint64_t count) { schedule_.stage_count = count * schedule_.strand_window; }
  /// Of a rank's stage, the part of the strand that steps are added to: elements of `range` in it.
  [[nodiscard]] Block stage(int32_t owner, Range range) const {
    const uint64_t each = schedule_.stage_count / schedule_.strand_window;
    const uint64_t begin = strand_ % schedule_.strand_window * each;
    return {Buffer::kStage, begin + range.begin, range.count, owner};
  }
  [[nodiscard]] uint32_t strand() const { return strand_; }
  [[nodiscard]] uint32_t window() const { return schedule_.strand_window; }

  /// Says that elements are not folded in one go in rank order.
  void folds_in(FoldOrder order) { schedule_.order = order; }
  /// Adds a strand of this rank alone that starts when all others are done, and goes there.
  void at_the_end() {
    schedule_.strand_window = 1;
    at(schedule_.strands++, 0);
  }
  [[nodiscard]] Schedule take() { return std::move(schedule_); }

 private:
  Step& add(StepKind kind) {
    Step& step = schedule_.steps.emplace_back();
    step.kind = kind;
    step.strand = strand_;
    step.round = round_;
    return step;
  }
  /// At most one message goes from one rank to another in a round: the round is a tag.
  Step& message(StepKind kind, int32_t peer) {
    Step& step = add(kind);
    step.peer = peer;
    step.tag = strand_ * rounds_ + round_;
    return step;
  }

  Schedule schedule_;
  uint32_t rounds_;
  uint32_t strand_ = 0;
  uint32_t round_ = 0;
};

}  // namespace corro::collective
