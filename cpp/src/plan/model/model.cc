#include "plan/model/model.h"

namespace corro::plan {

uint32_t layer_count(const Model& model) {
  uint32_t count = 0;
  for (const LayerRun& run : model.layers) count += run.count;
  return count;
}

uint64_t parameter_count(const Model& model) {
  uint64_t count = 0;
  for (const LayerRun& run : model.layers) {
    uint64_t layer = 0;
    for (const Operator& op : model.types[run.type].operators) layer += op.parameters;
    count += layer * run.count;
  }
  return count - model.tied_parameters;
}

double forward_flops(const Model& model) {
  double flops = 0;
  for (const LayerRun& run : model.layers) {
    double layer = 0;
    for (const Operator& op : model.types[run.type].operators) layer += op.flops;
    flops += layer * run.count;
  }
  return flops;
}

}  // namespace corro::plan
