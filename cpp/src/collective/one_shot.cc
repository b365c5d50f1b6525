#include <vector>

#include "collective/algorithms.h"
#include "collective/builder.h"

namespace corro::collective {

/// Everyone sends its vector to all others and folds what it got, with its own, in rank order.
/// Cost: 1 step; (P-1) n bytes a rank each way.
Schedule one_shot(const Problem& problem) {
  Builder builder(1, 2);
  const Range whole{0, problem.count};
  const Block received = builder.scratch(problem.count * static_cast<uint64_t>(problem.size - 1));
  std::vector<Block> sources(static_cast<size_t>(problem.size), input(whole));
  builder.at(0, 0);
  for (int32_t i = 1; i < problem.size; ++i) {
    builder.send(wrap(problem.rank + i, problem.size), input(whole));
    const int32_t from = wrap(problem.rank - i, problem.size);
    Block& source = sources[static_cast<size_t>(from)];
    source = part(received, problem.count * static_cast<uint64_t>(i - 1), problem.count);
    builder.recv(from, source);
  }
  builder.at(0, 1);
  builder.fold(output(whole), sources, true);
  return builder.take();
}

}  // namespace corro::collective
