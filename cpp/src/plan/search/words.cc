#include "plan/search/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace corro::plan {
namespace {

struct Term {
  std::string_view name;
  double StepTerms::* field;
};
constexpr Term kTerms[] = {{"computing", &StepTerms::compute},
                           {"recomputing", &StepTerms::recompute},
                           {"exchanges inside layers", &StepTerms::exchanges},
                           {"gathering weights", &StepTerms::weights},
                           {"moving to host memory", &StepTerms::offload},
                           {"hops between stages", &StepTerms::hops},
                           {"the pipeline's bubble", &StepTerms::bubble},
                           {"reducing gradients", &StepTerms::sync},
                           {"the optimizer", &StepTerms::update}};

std::string join(const std::vector<std::string>& parts) {
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string describe(const JobShape& shape) {
  std::vector<std::string> parts;
  const std::pair<std::string_view, uint32_t> degrees[] = {{"tp", shape.tensor},
                                                           {"cp", shape.context},
                                                           {"ep", shape.expert},
                                                           {"pp", shape.pipeline},
                                                           {"dp", shape.data}};
  for (const auto& [name, degree] : degrees) {
    const bool always = name != "cp" && name != "ep";
    if (always || degree > 1) parts.push_back(fmt::format("{} {}", name, degree));
  }
  parts.push_back(fmt::format("micro-batch {} x {}", shape.micro_batch, shape.micro_batches));
  if (shape.chunks > 1) parts.push_back(fmt::format("interleave {}", shape.chunks));
  if (shape.schedule == Schedule::kZeroBubble) parts.emplace_back("zero bubble");
  if (shape.schedule == Schedule::kGPipe) parts.emplace_back("gpipe");
  if (shape.zero > 0) parts.push_back(fmt::format("ZeRO {}", shape.zero));
  if (shape.sequence_parallel) parts.emplace_back("sequence parallel");
  if (shape.offload != Offload::kOff) {
    parts.push_back(fmt::format("{} offloaded", what_moves(shape.offload)));
  }
  return join(parts);
}

std::string describe(const Pins& pins) {
  std::vector<std::string> parts;
  const std::pair<std::string_view, const std::optional<uint32_t>*> numbers[] = {
      {"tp", &pins.tensor},         {"cp", &pins.context},  {"ep", &pins.expert},
      {"dp", &pins.data},           {"pp", &pins.pipeline}, {"micro_batch", &pins.micro_batch},
      {"interleave", &pins.chunks}, {"zero", &pins.zero}};
  for (const auto& [name, value] : numbers) {
    if (*value) parts.push_back(fmt::format("{} {}", name, **value));
  }
  if (pins.schedule) parts.push_back(fmt::format("schedule {}", name_of(*pins.schedule)));
  if (pins.sequence_parallel)
    parts.push_back(fmt::format("sequence_parallel {}", *pins.sequence_parallel ? "on" : "off"));
  if (pins.offload) parts.push_back(fmt::format("offload {}", name_of(*pins.offload)));
  return join(parts);
}

std::string what_limits(const Candidate& candidate) {
  for (size_t s = 0; s < candidate.stages.size(); ++s) {
    const StageEstimate& stage = candidate.stages[s].estimate;
    if (stage.recompute > 0 && stage.memory.sum() > 0.9 * candidate.stages[s].memory_limit) {
      return fmt::format("memory of stage {}, which recomputes", s);
    }
  }
  const auto most = std::ranges::max_element(
      kTerms, {}, [&](const Term& term) { return candidate.terms.*term.field; });
  return std::string(most->name);
}

std::string why_better(const Candidate& best, const std::optional<Candidate>& other) {
  if (!other) return "No other way to cut the model was found to fit.";
  const Term* gain = &kTerms[0];
  const Term* loss = &kTerms[0];
  const auto less = [&](const Term& term) {
    return other->terms.*term.field - best.terms.*term.field;
  };
  for (const Term& term : kTerms) {
    if (less(term) > less(*gain)) gain = &term;
    if (less(term) < less(*loss)) loss = &term;
  }
  std::string text = fmt::format("Against {}: {:.3g} s less for {}", describe(other->shape),
                                 less(*gain), gain->name);
  if (less(*loss) < 0) text += fmt::format(", {:.3g} s more for {}", -less(*loss), loss->name);
  return text + ".";
}

}  // namespace corro::plan
