#include "table/row_layout.h"

#include <algorithm>

namespace corro::table {
namespace {

size_t state_count(OptimizerKind kind, size_t dim) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
      return dim;
    case OptimizerKind::kRowwiseAdagrad:
      return 1;
    case OptimizerKind::kAdam:
      return 2 * dim + 1;
    case OptimizerKind::kFtrl:
      return 2 * dim;
  }
  return 0;
}

}  // namespace

RowLayout layout_of(const TableSpec& spec) {
  return {.weight_bytes = (spec.dim * size_of(spec.dtype) + 3) / 4 * 4,
          .state_count = state_count(spec.optimizer.kind, spec.dim)};
}

void write_initial_state(const TableSpec& spec, std::span<float> state) {
  const OptimizerKind kind = spec.optimizer.kind;
  std::ranges::fill(state, 0.0F);
  if (kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kRowwiseAdagrad) {
    std::ranges::fill(state, spec.optimizer.initial_accumulator);
  } else if (kind == OptimizerKind::kFtrl) {
    std::ranges::fill(state.subspan(spec.dim), spec.optimizer.initial_accumulator);
  }
}

}  // namespace corro::table
