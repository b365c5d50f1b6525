// What a transformer's operators do, counted: multiplications of its matrices (Narayanan et al.,
// "Efficient large-scale language model training on GPU clusters", SC'21, appendix), elements kept
// for backward (Korthikanti et al., "Reducing activation recomputation in large transformer
// models", 2022, §4.1: 17 s h + 2.5 a s^2 of two bytes a layer), and elements that elementwise
// kernels read and write. The last is a count of fused kernels: a norm reads and writes once, and
// so does what adds to the residual (that it reads twice is not seen in measured runs).
#include "plan/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace corro::plan {
namespace {

constexpr uint32_t kInput = Operator::kLayerInput;

/// The sizes that operators are counted with.
struct Sizes {
  explicit Sizes(const TransformerShape& shape)
      : s(shape.sequence),
        h(shape.hidden),
        heads(shape.heads),
        d(shape.head_size != 0 ? shape.head_size : h / heads),
        q(heads * d),
        kv((shape.kv_heads != 0 ? shape.kv_heads : heads) * d),
        f(shape.feed_forward != 0 ? shape.feed_forward : 4 * h),
        bias(shape.gated ? 0 : 1),
        mask(shape.dropout ? 0.5 : 0) {}

  double s, h, heads, d, q, kv, f;
  double bias;  ///< 1: matrices have one.
  double mask;  ///< Elements that a mask of dropout takes per element.
};

class LayerBuilder {
 public:
  explicit LayerBuilder(std::string name) { type_.name = std::move(name); }
  uint32_t add(Operator op) {
    type_.operators.push_back(std::move(op));
    return static_cast<uint32_t>(type_.operators.size() - 1);
  }
  [[nodiscard]] LayerType take() { return std::move(type_); }
  LayerType& type() { return type_; }

 private:
  LayerType type_;
};

Operator matmul(std::string name, uint32_t input, const Sizes& z, double in, double out,
                double ways) {
  return {.name = std::move(name),
          .kind = OperatorKind::kMatmul,
          .inputs = {input},
          .flops = 2 * z.s * in * out,
          .traffic = z.s * (in + out),
          .output = z.s * out,
          .saved = z.s * in,
          .parameters = static_cast<uint64_t>(in * out + z.bias * out),
          .most_ways = static_cast<uint32_t>(ways)};
}

Operator norm(std::string name, uint32_t input, const Sizes& z) {
  return {.name = std::move(name),
          .kind = OperatorKind::kNorm,
          .inputs = {input},
          .traffic = 2 * z.s * z.h,
          .output = z.s * z.h,
          .saved = z.s * z.h,
          .parameters = static_cast<uint64_t>((1 + z.bias) * z.h),
          .most_ways = static_cast<uint32_t>(z.s)};
}

/// Adds what a branch has computed to the residual.
Operator residual(std::string name, uint32_t branch, uint32_t around, const Sizes& z) {
  return {.name = std::move(name),
          .kind = OperatorKind::kElementwise,
          .inputs = {branch, around},
          .traffic = 2 * z.s * z.h,
          .output = z.s * z.h,
          .saved = z.mask * z.s * z.h,
          .most_ways = static_cast<uint32_t>(z.s)};
}

/// Scores are written, scaled and masked, softmaxed, dropped out and read: 6.5 times; what backward
/// needs of them are the softmax, its mask and the dropped out ones.
Operator attention(uint32_t input, const Sizes& z, bool flash) {
  const double scores = z.heads * z.s * z.s;
  return {.name = "attention",
          .kind = OperatorKind::kAttention,
          .inputs = {input},
          .flops = 4 * z.s * z.s * z.q,
          .traffic = 2 * z.s * (z.q + 2 * z.kv) + (flash ? 0 : 6.5 * scores),
          .output = z.s * z.q,
          .saved = z.s * (z.q + 2 * z.kv) + (flash ? 2 * z.heads * z.s : (2 + z.mask) * scores),
          .most_ways = static_cast<uint32_t>(z.kv / z.d)};
}

uint32_t add_attention(LayerBuilder& layer, const Sizes& z, bool flash) {
  const double ways = z.kv / z.d;
  const uint32_t before = layer.add(norm("norm1", kInput, z));
  const uint32_t qkv = layer.add(matmul("qkv", before, z, z.h, z.q + 2 * z.kv, ways));
  const uint32_t core = layer.add(attention(qkv, z, flash));
  const uint32_t out = layer.add(matmul("out", core, z, z.q, z.h, ways));
  layer.type().keys_and_values = 2 * z.s * z.kv;
  return layer.add(residual("residual1", out, kInput, z));
}

uint32_t add_feed_forward(LayerBuilder& layer, uint32_t input, const Sizes& z, double f, bool gated,
                          const std::string& prefix) {
  const uint32_t up = layer.add(matmul(prefix + "up", input, z, z.h, gated ? 2 * f : f, f));
  const uint32_t act = layer.add({.name = prefix + "activation",
                                  .kind = OperatorKind::kElementwise,
                                  .inputs = {up},
                                  .traffic = (gated ? 3 : 2) * z.s * f,
                                  .output = z.s * f,
                                  .saved = (gated ? 2 : 1) * z.s * f,
                                  .most_ways = static_cast<uint32_t>(f)});
  return layer.add(matmul(prefix + "down", act, z, f, z.h, f));
}

LayerType dense_block(const TransformerShape& shape, const Sizes& z) {
  LayerBuilder layer("block");
  const uint32_t middle = add_attention(layer, z, shape.flash_attention);
  const uint32_t before = layer.add(norm("norm2", middle, z));
  const uint32_t out = add_feed_forward(layer, before, z, z.f, shape.gated, "");
  layer.add(residual("residual2", out, middle, z));
  return layer.take();
}

/// Each token goes through `experts_per_token` of the experts, and through the shared ones.
LayerType expert_block(const TransformerShape& shape, const Sizes& z) {
  LayerBuilder layer("moe_block");
  const uint32_t middle = add_attention(layer, z, shape.flash_attention);
  const uint32_t before = layer.add(norm("norm2", middle, z));
  const double f = shape.expert_feed_forward != 0 ? shape.expert_feed_forward : z.f;
  const double matrices = shape.gated ? 3 : 2;
  const double routed = z.s * shape.experts_per_token;
  Operator experts{.name = "experts",
                   .kind = OperatorKind::kExperts,
                   .inputs = {before},
                   .flops = 2 * routed * z.h * f * matrices,
                   .traffic = routed * (2 * z.h + 2 * matrices * f),
                   .output = z.s * z.h,
                   .saved = routed * (2 * z.h + matrices * f) + z.s * shape.experts,
                   .parameters = static_cast<uint64_t>(shape.experts * matrices * z.h * f),
                   .most_ways = static_cast<uint32_t>(f)};
  const uint32_t out = layer.add(std::move(experts));
  Operator router = matmul("router", before, z, z.h, shape.experts, 1);
  router.saved = 0;  // Its input is kept once, by the experts.
  // The router stands before what it routes to.
  LayerType& type = layer.type();
  type.operators.insert(type.operators.begin() + out, std::move(router));
  type.operators.back().inputs.push_back(out);
  uint32_t last = out + 1;
  if (shape.shared_experts != 0) {
    const uint32_t shared =
        add_feed_forward(layer, before, z, f * shape.shared_experts, shape.gated, "shared_");
    last = layer.add(residual("combine", shared, last, z));
  }
  layer.add(residual("residual2", last, middle, z));
  type.experts = shape.experts;
  type.experts_moved = routed * z.h;
  return layer.take();
}

LayerType embedding_layer(const TransformerShape& shape, const Sizes& z) {
  LayerBuilder layer("embedding");
  const double rows = shape.vocabulary + (shape.learned_positions ? z.s : 0);
  layer.add({.name = "embedding",
             .kind = OperatorKind::kEmbedding,
             .inputs = {kInput},
             .traffic = 2 * z.s * z.h,
             .output = z.s * z.h,
             .saved = (0.5 + z.mask) * z.s * z.h,
             .parameters = static_cast<uint64_t>(rows * z.h),
             .most_ways = shape.vocabulary});
  return layer.take();
}

LayerType head_layer(const TransformerShape& shape, const Sizes& z) {
  LayerBuilder layer("head");
  const uint32_t before = layer.add(norm("norm", kInput, z));
  Operator logits = matmul("logits", before, z, z.h, shape.vocabulary, shape.vocabulary);
  logits.parameters = static_cast<uint64_t>(z.h * shape.vocabulary);
  const uint32_t scores = layer.add(std::move(logits));
  // The loss is computed in four bytes: logits are read, written as probabilities, and kept.
  layer.add({.name = "loss",
             .kind = OperatorKind::kLoss,
             .inputs = {scores},
             .traffic = 4 * z.s * shape.vocabulary,
             .output = 1,
             .saved = 2 * z.s * shape.vocabulary,
             .most_ways = shape.vocabulary});
  return layer.take();
}

}  // namespace

Model make_transformer(const TransformerShape& shape) {
  const Sizes z(shape);
  Model model{.name = shape.name, .sequence = shape.sequence};
  const auto add = [&](LayerType type, uint32_t count, std::string name) {
    if (count == 0) return;
    model.layers.push_back({static_cast<uint32_t>(model.types.size()), count, std::move(name)});
    model.types.push_back(std::move(type));
  };
  const uint32_t dense = shape.experts == 0 ? shape.layers : shape.dense_layers;
  add(embedding_layer(shape, z), 1, "embedding");
  add(dense_block(shape, z), dense, "block.{}");
  if (dense < shape.layers) add(expert_block(shape, z), shape.layers - dense, "moe_block.{}");
  add(head_layer(shape, z), 1, "head");
  if (shape.tied) model.tied_parameters = uint64_t{shape.vocabulary} * shape.hidden;
  return model;
}

Status check_shape(const TransformerShape& shape) {
  const auto refuse = [](std::string_view field, std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", field, what));
  };
  const std::pair<std::string_view, uint32_t> needed[] = {{"layers", shape.layers},
                                                          {"hidden", shape.hidden},
                                                          {"heads", shape.heads},
                                                          {"vocabulary", shape.vocabulary},
                                                          {"sequence", shape.sequence}};
  for (const auto& [field, value] : needed) {
    if (value == 0) return refuse(field, "must be at least 1");
  }
  if (shape.head_size == 0 && shape.hidden % shape.heads != 0) {
    return refuse("heads",
                  fmt::format("{} do not divide hidden, {}; else head_size has to be given",
                              shape.heads, shape.hidden));
  }
  if (shape.kv_heads != 0 && shape.heads % shape.kv_heads != 0) {
    return refuse("kv_heads",
                  fmt::format("{} do not divide heads, {}", shape.kv_heads, shape.heads));
  }
  if (shape.experts == 0) return {};
  if (shape.experts_per_token == 0 || shape.experts_per_token > shape.experts) {
    return refuse("experts_per_token", fmt::format("must be 1 to experts, {}", shape.experts));
  }
  if (shape.dense_layers > shape.layers) {
    return refuse("dense_layers", fmt::format("must be 0 to layers, {}", shape.layers));
  }
  return {};
}

}  // namespace corro::plan
