// The numbers of a decision by their names in the file: the writer and the reader walk the same
// lists.
#pragma once

#include <array>
#include <string_view>

#include "plan/report/decision_file.h"

namespace corro::plan {

template <typename Object>
struct RealField {
  std::string_view name;
  double Object::* field;
};

inline constexpr std::array<RealField<StepTerms>, 9> kTermFields = {{
    {"compute", &StepTerms::compute},
    {"recompute", &StepTerms::recompute},
    {"exchanges", &StepTerms::exchanges},
    {"weights", &StepTerms::weights},
    {"offload", &StepTerms::offload},
    {"hops", &StepTerms::hops},
    {"bubble", &StepTerms::bubble},
    {"sync", &StepTerms::sync},
    {"update", &StepTerms::update},
}};

inline constexpr std::array<RealField<MemoryUse>, 5> kMemoryFields = {{
    {"weights", &MemoryUse::weights},
    {"gradients", &MemoryUse::gradients},
    {"optimizer", &MemoryUse::optimizer},
    {"activations", &MemoryUse::activations},
    {"transient", &MemoryUse::transient},
}};

inline constexpr std::array<RealField<StageEstimate>, 12> kEstimateFields = {{
    {"forward", &StageEstimate::forward},
    {"backward", &StageEstimate::backward},
    {"weight_gradients", &StageEstimate::weight_part},
    {"recompute", &StageEstimate::recompute},
    {"exchanges", &StageEstimate::exchanges},
    {"weights", &StageEstimate::weights},
    {"offload", &StageEstimate::offload},
    {"hops", &StageEstimate::hops},
    {"sync", &StageEstimate::sync},
    {"update", &StageEstimate::update},
    {"reduce", &StageEstimate::reduce},
    {"starts", &StageEstimate::starts},
}};

struct DegreeField {
  std::string_view name;
  uint32_t JobShape::* field;
};

/// Counts of a shape that are 1 unless they are said.
inline constexpr std::array<DegreeField, 8> kDegreeFields = {{
    {"tensor", &JobShape::tensor},
    {"context", &JobShape::context},
    {"expert", &JobShape::expert},
    {"data", &JobShape::data},
    {"pipeline", &JobShape::pipeline},
    {"micro_batch", &JobShape::micro_batch},
    {"micro_batches", &JobShape::micro_batches},
    {"chunks", &JobShape::chunks},
}};

}  // namespace corro::plan
