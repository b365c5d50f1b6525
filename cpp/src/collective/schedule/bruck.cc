#include <vector>

#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {
namespace {

/// Scratch holds the blocks of ranks r, r+1, ... in this order; each step doubles how many there
/// are.
Schedule bruck_allgather(const Problem& problem) {
  const int32_t size = problem.size;
  const auto steps = static_cast<uint32_t>(log2_ceil(size));
  Builder builder(1, steps + 2);
  const Layout layout(problem.counts, problem.count, size);
  const auto rotated = [&](int32_t first, int32_t length) {
    const uint64_t before = layout.count_of_run(problem.rank, first);
    return Range{before, layout.count_of_run(problem.rank, first + length) - before};
  };
  const Block blocks = builder.scratch(layout.total());
  const Range own = layout.block(problem.rank);
  builder.at(0, 0);
  builder.copy(input({0, own.count}), part(blocks, 0, own.count));
  for (uint32_t step = 0; step < steps; ++step) {
    const int32_t have = int32_t{1} << step;
    const int32_t moved = std::min(have, size - have);
    const Range arriving = rotated(have, moved);
    builder.at(0, 1 + step);
    builder.send(wrap(problem.rank - have, size), part(blocks, 0, rotated(0, moved).count));
    builder.recv(wrap(problem.rank + have, size), part(blocks, arriving.begin, arriving.count));
  }
  const uint64_t until_last = layout.total() - own.begin;
  builder.at(0, 1 + steps);
  builder.copy(part(blocks, 0, until_last), output({own.begin, until_last}));
  builder.copy(part(blocks, until_last, own.begin), output({0, own.begin}));
  return builder.take();
}

/// Block i is the one for rank r + i. At the step of bit b, the blocks whose number has that bit
/// move 2^b ranks on, so in the end block i has moved i ranks and came from rank r - i.
Schedule bruck_alltoall(const Problem& problem) {
  const int32_t size = problem.size;
  const uint64_t count = problem.count;
  const auto steps = static_cast<uint32_t>(log2_ceil(size));
  Builder builder(1, 2 * steps + 1);
  std::vector<Block> where;  // of block i
  where.reserve(static_cast<size_t>(size));
  for (int32_t i = 0; i < size; ++i) {
    where.push_back(input({static_cast<uint64_t>(wrap(problem.rank + i, size)) * count, count}));
  }
  const auto most_moved = static_cast<uint64_t>((size + 1) / 2);
  const Block packed = builder.scratch(size > 1 ? most_moved * count : 0);
  for (uint32_t step = 0; step < steps; ++step) {
    const int32_t distance = int32_t{1} << step;
    uint64_t moved = 0;
    builder.at(0, 2 * step);
    for (int32_t i = distance; i < size; ++i) {
      if ((i & distance) == 0) continue;
      builder.copy(where[static_cast<size_t>(i)], part(packed, moved, count));
      moved += count;
    }
    const Block arrived = builder.scratch(moved);
    builder.at(0, 2 * step + 1);
    builder.send(wrap(problem.rank + distance, size), part(packed, 0, moved));
    builder.recv(wrap(problem.rank - distance, size), arrived);
    uint64_t next = 0;
    for (int32_t i = distance; i < size; ++i) {
      if ((i & distance) == 0) continue;
      where[static_cast<size_t>(i)] = part(arrived, next, count);
      next += count;
    }
  }
  builder.at(0, 2 * steps);
  for (int32_t i = 0; i < size; ++i) {
    const auto from = static_cast<uint64_t>(wrap(problem.rank - i, size));
    builder.copy(where[static_cast<size_t>(i)], output({from * count, count}));
  }
  return builder.take();
}

}  // namespace

/// Cost: ceil(log2 P) steps; an allgather moves (P-1) n bytes a rank, an alltoall about log2(P)/2 P
/// n, packed. Source: Bruck et al., "Efficient algorithms for all-to-all communications in
/// multiport message-passing systems" (1997), sections 3 and 4.
Schedule bruck(const Problem& problem) {
  return problem.kind == OpKind::kAllgather ? bruck_allgather(problem) : bruck_alltoall(problem);
}

}  // namespace corro::collective
