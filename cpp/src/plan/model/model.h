// Model: what is trained, as far as a planner has to know it: layers in a chain, operators inside.
//
//   CORRO_ASSIGN(const Model model, read_model(text, "model.json"));   // model_file.h
//   Model gpt = make_transformer({.layers = 96, .hidden = 12288, .heads = 96, ...});
//
// Amounts are per sample (one sequence, one image) and in elements, so that batch, dtype and cut
// multiply and divide them. What takes half an element (a mask of bytes) counts half.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace corro::plan {

/// How an operator can be cut among devices; docs/planner.md has a table of the layouts of each.
enum class OperatorKind : uint8_t {
  kMatmul,       ///< y = x W: W by columns or by rows.
  kAttention,    ///< Of independent heads.
  kElementwise,  ///< Each element of the output needs the same one of its inputs.
  kNorm,         ///< Needs all features of a token: cut along the sequence alone.
  kEmbedding,    ///< Rows of a table, cut by the vocabulary.
  kLoss,         ///< Of logits, which may be cut by the vocabulary.
  kExperts,      ///< A mixture of experts: dispatch, the experts' matmuls, combine.
  kOpaque,       ///< Nobody knows: whole, or by samples.
};
inline constexpr int kOperatorKindCount = 8;

[[nodiscard]] constexpr std::string_view name_of(OperatorKind kind) {
  constexpr std::string_view kNames[] = {"matmul",    "attention", "elementwise", "norm",
                                         "embedding", "loss",      "experts",     "opaque"};
  return kNames[static_cast<size_t>(kind)];
}

struct Operator {
  /// In `inputs`: what comes from the layer before.
  static constexpr uint32_t kLayerInput = 0xffffffffU;

  std::string name = {};
  OperatorKind kind = OperatorKind::kOpaque;
  std::vector<uint32_t> inputs = {};  ///< Operators of the layer before this one, or kLayerInput.
  double flops = 0;         ///< Forward, of matrix units: a multiplication and an addition are 2.
  double traffic = 0;       ///< Forward, elements that pass device memory: what bounds the rest.
  double output = 0;        ///< Elements.
  double saved = 0;         ///< Elements kept for backward; what two operators keep counts at one.
  uint64_t parameters = 0;  ///< Elements, of all experts together.
  uint32_t most_ways = 1;   ///< It can be cut so many ways at most (heads, features); 1: not.
  bool operator==(const Operator&) const = default;
};

/// Operators in an order in which each follows its inputs; the last one's output is the layer's.
struct LayerType {
  std::string name = {};
  std::vector<Operator> operators = {};
  uint32_t experts = 0;      ///< Of its kExperts operators; 0: none.
  double experts_moved = 0;  ///< Elements per sample sent to experts, and back again.
  /// Elements per sample of keys and values, which context parallelism sends around; 0: no
  /// attention.
  double keys_and_values = 0;
  bool operator==(const LayerType&) const = default;
};

/// `count` layers of one type, one after the other.
struct LayerRun {
  uint32_t type = 0;
  uint32_t count = 1;
  std::string name = {};  ///< Path of the module in the user's model; "h.{}" of several.
  bool operator==(const LayerRun&) const = default;
};

struct Model {
  std::string name = {};
  std::vector<LayerType> types = {};
  std::vector<LayerRun> layers = {};  ///< From the samples to the loss.
  /// Tokens per sample, which sequence and context parallelism cut; 0: samples are no sequences.
  uint32_t sequence = 0;
  /// Parameters of the first layer that the last one uses again, elements (a tied embedding).
  uint64_t tied_parameters = 0;
  /// What it was recorded in; the planner may choose another.
  DType dtype = DType::kBF16;
  bool operator==(const Model&) const = default;
};

/// Layers of all runs together.
[[nodiscard]] uint32_t layer_count(const Model& model);
/// Elements; tied ones count once.
[[nodiscard]] uint64_t parameter_count(const Model& model);
/// Of one sample, forward.
[[nodiscard]] double forward_flops(const Model& model);

}  // namespace corro::plan
