#include <vector>

#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {
namespace {

/// One rank's place in the ring: data flows from `left` to `right`.
struct Neighbours {
  explicit Neighbours(const Problem& problem)
      : rank(problem.rank),
        size(problem.size),
        left(wrap(rank - 1, size)),
        right(wrap(rank + 1, size)) {}

  /// Reducing: block b starts at rank b + 1 and arrives, complete, at rank b after size - 1 steps.
  [[nodiscard]] int32_t reduce_sends(int32_t step) const { return wrap(rank - 1 - step, size); }
  [[nodiscard]] int32_t reduce_receives(int32_t step) const {
    return wrap(rank - 2 - step + size, size);
  }
  /// Gathering: block b starts at rank b.
  [[nodiscard]] int32_t gather_sends(int32_t step) const { return wrap(rank - step, size); }
  [[nodiscard]] int32_t gather_receives(int32_t step) const { return wrap(rank - 1 - step, size); }

  int32_t rank, size, left, right;
};

uint32_t reduce_rounds(int32_t size) { return 2 * static_cast<uint32_t>(size) - 1; }

/// The reduce-scatter half of one strand. Partial results alternate between two halves of
/// `partials`, so that one is sent while the next arrives; the last fold goes to `result`. `piece`
/// gives this strand's part of a rank's block.
template <typename Piece>
void reduce_around(Builder& builder, const Neighbours& ring, uint32_t strand, Block partials,
                   const Piece& piece, Block result) {
  const Block own = input(piece(ring.rank));
  if (ring.size == 1) {
    builder.at(strand, 0);
    builder.fold(result, {&own, 1}, true);
    return;
  }
  const uint64_t half = partials.count / 2;
  const auto partial = [&](int32_t step, uint64_t count) {
    return part(partials, step % 2 == 0 ? 0 : half, count);
  };
  for (int32_t step = 0; step < ring.size - 1; ++step) {
    const Range sent = piece(ring.reduce_sends(step));
    const Range kept = piece(ring.reduce_receives(step));
    const Block incoming = partial(step, kept.count);
    const Block sources[] = {incoming, input(kept)};
    const bool last = step == ring.size - 2;
    builder.at(strand, 2 * static_cast<uint32_t>(step));
    builder.send(ring.right, step == 0 ? input(sent) : partial(step - 1, sent.count));
    builder.recv(ring.left, incoming);
    builder.at(strand, 2 * static_cast<uint32_t>(step) + 1);
    builder.fold(last ? result : incoming, sources, last);
  }
}

Schedule ring_allreduce(const Problem& problem) {
  const Neighbours ring(problem);
  const auto size = static_cast<uint32_t>(problem.size);
  const uint64_t longest = slice(problem.count, size, 0).count;
  Builder builder(strands_for(problem, longest), reduce_rounds(problem.size) + size);
  builder.folds_in(FoldOrder::kRing);
  const uint64_t longest_piece = slice(longest, builder.strands(), 0).count;
  const Block partials = builder.scratch_per_strand(2 * longest_piece);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const auto piece = [&](int32_t rank) {
      const Range block = slice(problem.count, size, static_cast<uint64_t>(rank));
      return slice(block, builder.strands(), strand);
    };
    reduce_around(builder, ring, strand, builder.slot(partials, strand), piece,
                  output(piece(ring.rank)));
    for (int32_t step = 0; step < ring.size - 1; ++step) {
      builder.at(strand, reduce_rounds(problem.size) + static_cast<uint32_t>(step));
      builder.send(ring.right, output(piece(ring.gather_sends(step))));
      builder.recv(ring.left, output(piece(ring.gather_receives(step))));
    }
  }
  return builder.take();
}

Schedule ring_reducescatter(const Problem& problem) {
  const Neighbours ring(problem);
  const Layout layout(problem.counts, problem.count, problem.size);
  Builder builder(strands_for(problem, layout.largest()), reduce_rounds(problem.size));
  builder.folds_in(FoldOrder::kOther);
  const uint64_t longest_piece = slice(layout.largest(), builder.strands(), 0).count;
  const Block partials = builder.scratch_per_strand(2 * longest_piece);
  const Range own = layout.block(problem.rank);
  // In place, the output lies over input that later strands still need.
  const Block result = problem.in_place ? builder.scratch(own.count) : output({0, own.count});
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const auto piece = [&](int32_t rank) {
      return slice(layout.block(rank), builder.strands(), strand);
    };
    const Range own_piece = piece(problem.rank);
    reduce_around(builder, ring, strand, builder.slot(partials, strand), piece,
                  part(result, own_piece.begin - own.begin, own_piece.count));
  }
  if (problem.in_place) {
    builder.at_the_end();
    builder.copy(result, output({0, own.count}));
  }
  return builder.take();
}

Schedule ring_allgather(const Problem& problem) {
  const Neighbours ring(problem);
  const Layout layout(problem.counts, problem.count, problem.size);
  Builder builder(strands_for(problem, layout.largest()), static_cast<uint32_t>(problem.size));
  const Range own = layout.block(problem.rank);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const auto piece = [&](int32_t rank) {
      return slice(layout.block(rank), builder.strands(), strand);
    };
    const Range own_piece = piece(problem.rank);
    const Block own_input = input({own_piece.begin - own.begin, own_piece.count});
    builder.at(strand, 0);
    builder.copy(own_input, output(own_piece));
    for (int32_t step = 0; step < ring.size - 1; ++step) {
      builder.at(strand, static_cast<uint32_t>(step));
      builder.send(ring.right, step == 0 ? own_input : output(piece(ring.gather_sends(step))));
      builder.recv(ring.left, output(piece(ring.gather_receives(step))));
    }
  }
  return builder.take();
}

/// A chain from the root on: with many strands, every link carries the vector once.
Schedule ring_broadcast(const Problem& problem) {
  const Neighbours ring(problem);
  Builder builder(strands_for(problem, problem.count), static_cast<uint32_t>(problem.size));
  const int32_t position = wrap(problem.rank - problem.root, problem.size);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range piece = slice(problem.count, builder.strands(), strand);
    const bool is_root = position == 0;
    if (is_root) {
      builder.at(strand, 0);
      builder.copy(input(piece), output(piece));
    } else {
      builder.at(strand, static_cast<uint32_t>(position - 1));
      builder.recv(ring.left, output(piece));
    }
    if (position == ring.size - 1) continue;
    builder.at(strand, static_cast<uint32_t>(position));
    builder.send(ring.right, is_root ? input(piece) : output(piece));
  }
  return builder.take();
}

}  // namespace

/// Every rank talks to its two neighbours only. Cost: 2 (P-1) steps and 2 (P-1)/P n bytes a rank
/// each way for an allreduce, half of both for reducescatter and allgather; P-1 steps and n bytes
/// for a broadcast. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
/// clusters of workstations" (2009), section 4.
Schedule ring(const Problem& problem) {
  switch (problem.kind) {
    case OpKind::kAllreduce:
      return ring_allreduce(problem);
    case OpKind::kReducescatter:
      return ring_reducescatter(problem);
    case OpKind::kAllgather:
      return ring_allgather(problem);
    default:
      return ring_broadcast(problem);
  }
}

}  // namespace corro::collective
