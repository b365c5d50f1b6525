#include "launch/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace corro::launch {
namespace {

/// Physical cores, each with its processors, in the order node, package, core.
std::vector<std::vector<int>> group_by_core(std::vector<agent::Processor> processors) {
  const auto place = [](const agent::Processor& p) {
    return std::tie(p.node, p.package, p.core, p.id);
  };
  std::ranges::sort(processors, [&](const agent::Processor& a, const agent::Processor& b) {
    return place(a) < place(b);
  });
  std::vector<std::vector<int>> cores;
  int last = -1;
  for (const agent::Processor& processor : processors) {
    if (cores.empty() || processor.core != last) cores.emplace_back();
    cores.back().push_back(processor.id);
    last = processor.core;
  }
  return cores;
}

}  // namespace

Result<Binding> decide_binding(Bind bind, int ranks, std::vector<agent::Processor> processors) {
  if (bind == Bind::kNone) return Binding{.ranks = {}, .reason = "--bind none"};
  const auto cores = group_by_core(std::move(processors));
  const auto count = static_cast<size_t>(ranks);
  if (bind == Bind::kCore && cores.size() < count) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("--bind core: {} ranks but only {} cores; use fewer ranks or "
                              "--bind none",
                              ranks, cores.size()));
  }
  if (bind == Bind::kAuto && (count < 2 || cores.size() < 2 * count)) {
    return Binding{.ranks = {},
                   .reason = count < 2 ? "one rank" : "fewer than two cores for each rank"};
  }
  Binding binding{.ranks = {}, .reason = fmt::format("{} cores in {} shares", cores.size(), ranks)};
  for (size_t rank = 0; rank < count; ++rank) {
    auto& mine = binding.ranks.emplace_back();
    for (size_t core = rank * cores.size() / count; core < (rank + 1) * cores.size() / count;
         ++core) {
      mine.insert(mine.end(), cores[core].begin(), cores[core].end());
    }
    std::ranges::sort(mine);
  }
  return binding;
}

}  // namespace corro::launch
