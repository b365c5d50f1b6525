#include <algorithm>
#include <vector>

#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {
namespace {

constexpr uint32_t kRounds = 3;

/// Round 0 of a strand, on all ranks: every contributor sends each owner the owner's range. The
/// owner folds all contributions to `own` in the next ones.
class Gathering {
 public:
  Gathering(Builder& builder, int32_t rank, int32_t contributors, uint64_t longest_own)
      : builder_(builder),
        rank_(rank),
        contributors_(contributors),
        contributes_(rank < contributors),
        longest_own_(longest_own),
        received_(builder.scratch_per_strand(longest_own * others())) {}

  void send(int32_t owner, Range range) {
    if (contributes_) builder_.send(owner, input(range));
  }
  /// Receives every other contribution to `own`.
  void receive(uint32_t strand, Range own) {
    const Block slot = builder_.slot(received_, strand);
    sources_.assign(static_cast<size_t>(contributors_), input(own));
    uint64_t next = 0;
    for (int32_t from = 0; from < contributors_; ++from) {
      if (from == rank_) continue;
      Block& source = sources_[static_cast<size_t>(from)];
      source = part(slot, longest_own_ * next++, own.count);
      builder_.recv(from, source);
    }
  }
  /// Where an owner without buffers of its own may put the result.
  [[nodiscard]] Block first_source() const { return sources_.front(); }
  /// In rank order, in one go, in the round that has begun.
  void fold(Block into) { builder_.fold(into, sources_, true); }
  /// Contribution after contribution as a ring of the contributors does it with a vector of `count`
  /// elements: in its block b from rank b + 1 on. In the rounds from 1 on.
  void fold_around(uint32_t strand, Range own, uint64_t count, Block into) {
    for (int32_t step = 1; step < contributors_; ++step) {
      builder_.at(strand, static_cast<uint32_t>(step));
      for (int32_t block = 0; block < contributors_; ++block) {
        const Range whole =
            slice(count, static_cast<uint64_t>(contributors_), static_cast<uint64_t>(block));
        const uint64_t begin = std::max(whole.begin, own.begin);
        const uint64_t end = std::min(whole.begin + whole.count, own.begin + own.count);
        if (begin < end) fold_next(block, step, {begin - own.begin, end - begin}, into);
      }
    }
  }

 private:
  /// Adds one contribution to what those before it have given.
  void fold_next(int32_t block, int32_t step, Range range, Block into) {
    const auto source = [&](int32_t place) {
      const int32_t from = wrap(block + 1 + place, contributors_);
      return part(sources_[static_cast<size_t>(from)], range.begin, range.count);
    };
    const bool first_is_input = source(0).buffer == Buffer::kInput;
    const Block partial = source(first_is_input ? 1 : 0);
    const Block folded[] = {step == 1 ? source(0) : partial, source(step)};
    const bool last = step == contributors_ - 1;
    builder_.fold(last ? part(into, range.begin, range.count) : partial, folded, last);
  }
  [[nodiscard]] uint64_t others() const {
    return static_cast<uint64_t>(contributors_ - (contributes_ ? 1 : 0));
  }

  Builder& builder_;
  int32_t rank_;
  int32_t contributors_;
  bool contributes_;
  uint64_t longest_own_;
  Block received_;
  std::vector<Block> sources_;
};

Schedule two_shot_allreduce(const Problem& problem) {
  const int32_t contributors = problem.size - problem.aggregators;
  const bool contributes = problem.rank < contributors;
  const Shares shares(contributors, problem.aggregators);
  uint64_t longest = 0;
  for (int32_t i = 0; i < problem.size; ++i)
    longest = std::max(longest, shares.of(i, problem.count).count);
  const bool around = problem.folds_as == Algorithm::kRing && contributors > 1;
  const uint32_t folds = around ? static_cast<uint32_t>(contributors) - 1 : 1;
  Builder builder(strands_for(problem, longest), kRounds - 1 + folds);
  if (around) builder.folds_in(FoldOrder::kRing);
  const bool owns = shares.owns(problem.rank);
  const auto piece = [&](int32_t owner, uint32_t strand) {
    return slice(shares.of(owner, problem.count), builder.strands(), strand);
  };
  Gathering gathering(builder, problem.rank, contributors, owns ? piece(problem.rank, 0).count : 0);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range own = piece(problem.rank, strand);
    builder.at(strand, 0);
    for (int32_t i = 1; i < problem.size; ++i) {
      const int32_t owner = wrap(problem.rank + i, problem.size);
      if (shares.owns(owner)) gathering.send(owner, piece(owner, strand));
    }
    Block result = output(own);
    if (owns) {
      gathering.receive(strand, own);
      if (!contributes) result = gathering.first_source();
      builder.at(strand, 1);
      if (around) {
        gathering.fold_around(strand, own, problem.count, result);
      } else {
        gathering.fold(result);
      }
    }
    builder.at(strand, 1 + folds);
    for (int32_t i = 1; i < problem.size; ++i) {
      const int32_t to = wrap(problem.rank + i, problem.size);
      if (owns && to < contributors) builder.send(to, result);
      const int32_t owner = wrap(problem.rank - i, problem.size);
      if (contributes && shares.owns(owner)) builder.recv(owner, output(piece(owner, strand)));
    }
  }
  return builder.take();
}

Schedule two_shot_reducescatter(const Problem& problem) {
  const Layout layout(problem.counts, problem.count, problem.size);
  Builder builder(strands_for(problem, layout.largest()), kRounds);
  const auto piece = [&](int32_t owner, uint32_t strand) {
    return slice(layout.block(owner), builder.strands(), strand);
  };
  const Range own = layout.block(problem.rank);
  // In place, the output lies over input that later strands still need.
  const Block result = problem.in_place ? builder.scratch(own.count) : output({0, own.count});
  Gathering gathering(builder, problem.rank, problem.size, piece(problem.rank, 0).count);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range own_piece = piece(problem.rank, strand);
    builder.at(strand, 0);
    for (int32_t i = 1; i < problem.size; ++i) {
      const int32_t owner = wrap(problem.rank + i, problem.size);
      gathering.send(owner, piece(owner, strand));
    }
    gathering.receive(strand, own_piece);
    builder.at(strand, 1);
    gathering.fold(part(result, own_piece.begin - own.begin, own_piece.count));
  }
  if (problem.in_place) {
    builder.at_the_end();
    builder.copy(result, output({0, own.count}));
  }
  return builder.take();
}

}  // namespace

/// Allreduce: every owner of a share gets it from all contributors, folds it in rank order and
/// sends the result back. Reducescatter: the first half of that. Cost for P contributors: 2 steps
/// (1), 2 (P-1)/P n bytes a rank each way. Served: the same with owners that contribute nothing.
Schedule two_shot(const Problem& problem) {
  return problem.kind == OpKind::kAllreduce ? two_shot_allreduce(problem)
                                            : two_shot_reducescatter(problem);
}

}  // namespace corro::collective
