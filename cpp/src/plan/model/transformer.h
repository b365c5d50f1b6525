// A transformer by its shape, as in a config.json: GPT, Llama, mixtures of experts.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "plan/model/model.h"

namespace corro::plan {

/// Field names are those of the short YAML; a Hugging Face config.json is translated to them.
struct TransformerShape {
  std::string name = "transformer";
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;      ///< 0: as many as heads.
  uint32_t head_size = 0;     ///< 0: hidden / heads.
  uint32_t feed_forward = 0;  ///< 0: 4 hidden.
  bool gated = false;         ///< Three matrices instead of two (SwiGLU), and no biases.
  uint32_t vocabulary = 0;
  uint32_t sequence = 0;
  bool tied = true;               ///< The output layer uses the embedding's table.
  bool learned_positions = true;  ///< A table of positions beside that of tokens.
  bool dropout = true;            ///< Its masks are kept for backward.
  bool flash_attention = false;   ///< Scores are never written to memory.
  uint32_t experts = 0;           ///< Routed ones, in every layer that is not dense; 0: none.
  uint32_t experts_per_token = 0;
  uint32_t shared_experts = 0;       ///< Every token goes through these, too.
  uint32_t expert_feed_forward = 0;  ///< 0: feed_forward.
  uint32_t dense_layers = 0;         ///< The first ones, without experts.
};

/// Requires check_shape(shape).ok().
[[nodiscard]] Model make_transformer(const TransformerShape& shape);

/// INVALID_ARGUMENT "heads: ..." for a shape that is none: zeros, heads that do not divide hidden
/// (without head_size), kv_heads that do not divide heads, more experts per token than experts.
[[nodiscard]] Status check_shape(const TransformerShape& shape);

}  // namespace corro::plan
