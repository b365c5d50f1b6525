// Megatron counts transformer layers; the embedding is before them on the first stage, the loss
// behind them on the last. It has one choice of recompute for all stages, and its ranks have the
// order of ours: tensor, context, data, pipeline.
#include "plan/report/megatron.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quoted.h"
#include "plan/amounts.h"
#include "plan/report/facts.h"

namespace corro::plan {
namespace {

/// Transformer layers of one stage, and how many of them recompute so.
struct StageLayers {
  uint32_t layers = 0;
  std::array<uint32_t, kRecomputeCount> recompute = {};
};

class Export {
 public:
  explicit Export(const DecisionFile& file)
      : file_(file), best_(file.decision.best), shape_(file.decision.best.shape) {
    const auto& runs = file.model.layers;
    is_transformer_ = std::ranges::any_of(runs, &LayerSummary::attention);
    for (const PlannedStage& stage : best_.stages) stages_.push_back(layers_of(stage));
    for (const LayerSummary& run : runs) layers_ += counts(run) ? run.count() : 0;
  }

  std::string text() {
    add_model();
    add_degrees();
    add_stages();
    add_batch();
    add_recompute();
    add_sharding();
    add_dtype();
    add_placement();
    return std::move(text_);
  }

 private:
  void flag(std::string_view name) { text_ += fmt::format("--{}\n", name); }
  void flag(std::string_view name, uint64_t value) {
    text_ += fmt::format("--{} {}\n", name, value);
  }
  void note(std::string_view words) { text_ += fmt::format("# {}\n", words); }

  [[nodiscard]] bool counts(const LayerSummary& run) const {
    return run.attention || !is_transformer_;
  }
  [[nodiscard]] StageLayers layers_of(const PlannedStage& stage) const {
    StageLayers layers;
    const auto [first, last] = runs_within(file_.model, stage.layers);
    for (size_t run = first; run < last; ++run) {
      if (!counts(file_.model.layers[run])) continue;
      layers.layers += layers_within(file_.model.layers[run], stage.layers);
      if (run >= stage.recompute.size()) continue;
      for (size_t how = 0; how < kRecomputeCount; ++how) {
        layers.recompute[how] += stage.recompute[run][how];
      }
    }
    return layers;
  }
  [[nodiscard]] bool all_stages(auto holds) const { return std::ranges::all_of(stages_, holds); }

  void add_model();
  void add_degrees();
  void add_stages();
  void add_interleaved(bool is_even);
  [[nodiscard]] bool add_first_and_last();
  void add_layout();
  void add_batch();
  void add_recompute();
  void add_full_blocks(uint32_t layers);
  void add_sharding();
  void add_dtype();
  void add_placement();
  void add_ranks_elsewhere();

  const DecisionFile& file_;
  const Candidate& best_;
  const JobShape& shape_;
  bool is_transformer_ = false;
  uint32_t layers_ = 0;
  std::vector<StageLayers> stages_ = {};
  std::string text_ = {};
};

void Export::add_model() {
  note(fmt::format("{}: {} on {}, {} devices", kMegatronVersion, file_.model.name,
                   file_.cluster.name, shape_.ranks()));
  note("Add the model's own flags: hidden size, heads, vocabulary, data.");
  if (!is_transformer_) {
    note("This model has no layer with attention, and Megatron trains transformers:");
    note("--num-layers counts all layers of the plan.");
  }
  flag("num-layers", layers_);
  if (file_.model.sequence > 0) flag("seq-length", file_.model.sequence);
}

void Export::add_degrees() {
  flag("tensor-model-parallel-size", shape_.tensor);
  flag("pipeline-model-parallel-size", shape_.pipeline);
  flag("context-parallel-size", shape_.context);
  uint32_t experts = 0;
  for (const LayerSummary& run : file_.model.layers) experts = std::max(experts, run.experts);
  if (experts > 0) flag("num-experts", experts);
  if (experts > 0 || shape_.expert > 1) flag("expert-model-parallel-size", shape_.expert);
  if (shape_.sequence_parallel && shape_.tensor > 1) flag("sequence-parallel");
}

void Export::add_stages() {
  if (shape_.pipeline == 1 || stages_.empty()) return;
  if (shape_.schedule == Schedule::kGPipe) {
    note("The plan's schedule is GPipe; Megatron runs 1F1B, which takes as long and less memory.");
  }
  if (shape_.schedule == Schedule::kZeroBubble) {
    note("The plan's schedule is zero bubble; Megatron runs 1F1B, which has a longer bubble.");
  }
  const bool is_even =
      all_stages([&](const StageLayers& s) { return s.layers == stages_.front().layers; });
  if (shape_.chunks > 1) return add_interleaved(is_even);
  if (is_even || add_first_and_last()) return;
  add_layout();
}

void Export::add_interleaved(bool is_even) {
  const bool divides =
      all_stages([&](const StageLayers& s) { return s.layers % shape_.chunks == 0; });
  if (shape_.micro_batches % shape_.pipeline != 0) {
    note(fmt::format("Megatron interleaves multiples of {} micro-batches; the plan has {}.",
                     shape_.pipeline, shape_.micro_batches));
  }
  if (is_even && divides) {
    return flag("num-layers-per-virtual-pipeline-stage", stages_.front().layers / shape_.chunks);
  }
  if (divides && add_first_and_last()) {
    return flag("num-virtual-stages-per-pipeline-rank", shape_.chunks);
  }
  add_layout();
}

/// True if the stages between the first and the last are alike, as Megatron divides them.
bool Export::add_first_and_last() {
  if (stages_.size() < 2 || stages_.front().layers == 0 || stages_.back().layers == 0) return false;
  for (size_t s = 2; s + 1 < stages_.size(); ++s) {
    if (stages_[s].layers != stages_[1].layers) return false;
  }
  flag("decoder-first-pipeline-num-layers", stages_.front().layers);
  flag("decoder-last-pipeline-num-layers", stages_.back().layers);
  return true;
}

/// The chunks in the order of the layers: the first of every stage, the second of every stage, ...
void Export::add_layout() {
  std::string layout = "E";
  for (uint32_t chunk = 0; chunk < shape_.chunks; ++chunk) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (chunk + s > 0) layout += '|';
      const uint32_t all = stages_[s].layers;
      const uint32_t layers = all / shape_.chunks + (chunk < all % shape_.chunks ? 1 : 0);
      if (layers > 0) layout += fmt::format("t*{}", layers);
    }
  }
  text_ += fmt::format("--pipeline-model-parallel-layout {}\n", quoted(layout + "L"));
}

void Export::add_batch() {
  flag("micro-batch-size", shape_.micro_batch);
  flag("global-batch-size", file_.decision.global_batch);
}

void Export::add_recompute() {
  constexpr auto kAttention = static_cast<size_t>(Recompute::kAttention);
  constexpr auto kFull = static_cast<size_t>(Recompute::kFull);
  uint32_t attention = 0;
  uint32_t full = 0;
  uint32_t most = 0;  // Layers of one stage that recompute anything.
  for (const StageLayers& stage : stages_) {
    attention += stage.recompute[kAttention];
    full += stage.recompute[kFull];
    most = std::max(most, stage.recompute[kAttention] + stage.recompute[kFull]);
  }
  uint32_t in_plan = 0;
  for (const PlannedStage& stage : best_.stages) {
    in_plan += recomputed(stage, Recompute::kAttention) + recomputed(stage, Recompute::kFull);
  }
  uint32_t moved = 0;
  for (const PlannedStage& stage : best_.stages) moved += recomputed(stage, Recompute::kOffload);
  if (moved > 0) {
    note(fmt::format("Not expressed: activations of {} layers go to host memory. Near to it:",
                     moved));
    note("--fine-grained-activation-offloading with --offload-modules, in all layers.");
  }
  if (in_plan > attention + full) {
    note("Not expressed: recompute in layers that are no transformer layers.");
  }
  if (attention + full == 0) return;
  const bool is_exact =
      full == 0 ? attention == layers_
                : attention == 0 && (full == layers_ || all_stages([&](const StageLayers& s) {
                                       return s.recompute[kFull] == most;
                                     }));
  if (!is_exact) {
    note(fmt::format("The plan recomputes {}, stage by stage.", recompute_text(best_)));
    note("Megatron has one choice for all stages; this one recomputes more, and keeps less.");
  }
  if (full == 0) {
    text_ += "--recompute-granularity selective\n";
  } else {
    add_full_blocks(all_stages([&](const StageLayers& s) { return s.layers <= most; }) ? 0 : most);
  }
}

/// `layers` of each stage, or all of all stages if it is 0.
void Export::add_full_blocks(uint32_t layers) {
  const uint32_t of_chunk = (layers + shape_.chunks - 1) / shape_.chunks;
  text_ += "--recompute-granularity full\n";
  text_ += fmt::format("--recompute-method {}\n", layers == 0 ? "uniform" : "block");
  flag("recompute-num-layers", layers == 0 ? 1 : of_chunk);
  if (layers % shape_.chunks != 0) {
    note(fmt::format("Counted for each of {} chunks: {} layers instead of {}.", shape_.chunks,
                     of_chunk * shape_.chunks, layers));
  }
}

void Export::add_sharding() {
  if (shape_.zero >= 1) flag("use-distributed-optimizer");
  if (shape_.zero >= 2) {
    flag("use-megatron-fsdp");
    text_ += fmt::format("--data-parallel-sharding-strategy {}\n",
                         shape_.zero == 2 ? "optim_grads" : "optim_grads_params");
  }
  if (shape_.overlap && shape_.data * shape_.context > 1) {
    flag("overlap-grad-reduce");
    if (shape_.zero >= 1) flag("overlap-param-gather");
    // Megatron counts elements, which have four bytes as gradients.
    const auto elements = static_cast<uint64_t>(bucket_of(best_) / 4);
    if (elements > 0) flag("ddp-bucket-size", elements);
  }
  if (shape_.offload == Offload::kOff) return;
  flag("optimizer-cpu-offload");
  flag("use-precision-aware-optimizer");
  if (shape_.zero == 0) {
    note("Megatron offloads the optimizer's state only with --use-distributed-optimizer.");
  }
  if (shape_.offload > Offload::kOptimizer) {
    note(
        fmt::format("Not expressed: {} in host memory; Megatron moves the optimizer's state alone.",
                    what_moves(shape_.offload)));
  }
}

void Export::add_dtype() {
  const bool sums_in_f32 = shape_.gradient_dtype == DType::kF32;
  if (shape_.dtype == DType::kBF16) {  // Sums up in f32, unless told otherwise.
    flag("bf16");
    if (!sums_in_f32) flag("grad-reduce-in-bf16");
    return;
  }
  if (shape_.dtype == DType::kF16) {  // The other way round.
    flag("fp16");
    if (sums_in_f32) flag("accumulate-allreduce-grads-in-fp32");
    return;
  }
  if (shape_.dtype == DType::kF32)
    return note("f32 is what Megatron takes without --bf16, --fp16.");
  note(fmt::format("Not expressed: dtype {}.", name_of(shape_.dtype)));
}

/// Ranks that follow each other on devices that do share a line.
void Export::add_ranks_elsewhere() {
  constexpr size_t kMostLines = 64;
  const auto& devices = best_.placement;
  if (devices.empty()) return;
  note("Not expressed: links between hosts differ, so ranks lie on devices in another order.");
  size_t lines = 0;
  for (size_t first = 0; first < devices.size();) {
    size_t last = first;
    while (last + 1 < devices.size() && devices[last + 1] == devices[last] + 1) ++last;
    if (++lines > kMostLines) return note("The plan file has all of them: decisions.placement.");
    note(fmt::format("ranks {}: devices {}", range_text(first, last),
                     range_text(devices[first], devices[last])));
    first = last + 1;
  }
}

void Export::add_placement() {
  uint64_t next = 0;
  bool in_order = true;
  for (const PlannedStage& stage : best_.stages) {
    in_order = in_order && stage.first_device == next;
    next += stage.devices;
  }
  const bool one_type = std::ranges::all_of(
      best_.stages, [&](const auto& stage) { return stage.type == best_.stages.front().type; });
  add_ranks_elsewhere();
  if (!one_type) note("Stages lie on devices of several types: start ranks in the plan's order.");
  if (in_order) return;
  note("Not expressed: stages lie on devices in another order than ranks. By stage:");
  for (size_t s = 0; s < best_.stages.size(); ++s) {
    const PlannedStage& stage = best_.stages[s];
    note(fmt::format("stage {}: devices {} to {}", s, stage.first_device,
                     uint64_t{stage.first_device} + stage.devices - 1));
  }
}

}  // namespace

std::string export_megatron(const DecisionFile& file) { return Export(file).text(); }

}  // namespace corro::plan
