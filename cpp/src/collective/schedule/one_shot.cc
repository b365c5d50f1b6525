#include <vector>

#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {

/// Everyone sends its vector to all others and folds what it got, with its own, in rank order;
/// chunk by chunk, so that one is folded while the next is under way. Cost: 1 step; (P-1) n bytes a
/// rank each way.
Schedule one_shot(const Problem& problem) {
  Builder builder(strands_for(problem, problem.count), 2);
  const auto others = static_cast<uint64_t>(problem.size - 1);
  const uint64_t longest = slice(problem.count, builder.strands(), 0).count;
  const Block received = builder.scratch_per_strand(longest * others);
  std::vector<Block> sources(static_cast<size_t>(problem.size));
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range piece = slice(problem.count, builder.strands(), strand);
    const Block slot = builder.slot(received, strand);
    sources.assign(sources.size(), input(piece));
    builder.at(strand, 0);
    for (int32_t i = 1; i < problem.size; ++i) {
      builder.send(wrap(problem.rank + i, problem.size), input(piece));
      const int32_t from = wrap(problem.rank - i, problem.size);
      Block& source = sources[static_cast<size_t>(from)];
      source = part(slot, longest * static_cast<uint64_t>(i - 1), piece.count);
      builder.recv(from, source);
    }
    builder.at(strand, 1);
    builder.fold(output(piece), sources, true);
  }
  return builder.take();
}

}  // namespace corro::collective
