#include "plan/model/config_fields.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace corro::plan {
namespace {

/// Sorted. Biases, norms of single heads and the like are fewer than a thousandth of a model.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "_remove_final_layer_norm",
    "activation_dropout",
    "add_bias_linear",
    "add_qkv_bias",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "architectures",
    "attention_bias",
    "attention_dropout",
    "attention_in_fp32",
    "attention_layers",
    "attention_multiplier",
    "attention_probs_dropout_prob",
    "attention_softmax_in_fp32",
    "attention_types",
    "attn_logit_softcapping",
    "attn_pdrop",
    "auto_map",
    "aux_loss_alpha",
    "bias",
    "bias_dropout_fusion",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "clip_qkv",
    "directionality",
    "do_layer_norm_before",
    "dtype",
    "emb_pdrop",
    "embd_pdrop",
    "embedding_dropout",
    "embedding_multiplier",
    "enable_bias",
    "eos_token_id",
    "ep_size",
    "final_logit_softcapping",
    "gradient_checkpointing",
    "id2label",
    "init_device",
    "init_std",
    "initializer_factor",
    "initializer_range",
    "label2id",
    "layer_norm_elementwise_affine",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layer_types",
    "layerdrop",
    "learned_pos_emb",
    "logit_scale",
    "logits_scaling",
    "masked_softmax_fusion",
    "max_length",
    "max_window_layers",
    "min_length",
    "mlp_bias",
    "n_group",
    "no_bias",
    "norm_eps",
    "norm_epsilon",
    "norm_topk_prob",
    "norm_type",
    "num_labels",
    "num_ln_in_parallel_attn",
    "offset_alibi",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "parallel_attn",
    "partial_rotary_factor",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "pretraining_tp",
    "problem_type",
    "q_lora_rank",
    "qk_layernorm",
    "qk_nope_head_dim",
    "qkv_bias",
    "quantization_config",
    "query_pre_attn_scalar",
    "reorder_and_upcast_attn",
    "residual_dropout",
    "residual_multiplier",
    "return_dict",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_percent",
    "rope_scaling",
    "rope_theta",
    "rotary",
    "rotary_dim",
    "rotary_emb_base",
    "rotary_pct",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scale_attention_softmax_in_fp32",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "scoring_func",
    "sep_token_id",
    "seq_aux",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "sliding_window",
    "sliding_window_pattern",
    "slow_but_exact",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tokenizer_class",
    "topk_group",
    "topk_method",
    "torch_dtype",
    "transformers_version",
    "type_vocab_size",
    "use_bfloat16",
    "use_bias",
    "use_cache",
    "use_parallel_residual",
    "use_qk_norm",
    "use_qkv_bias",
    "use_sliding_window",
    "window_size",
});
static_assert(std::ranges::is_sorted(kHarmless));

/// What config.cc reads beside the numbers of a shape.
constexpr auto kRead = std::to_array<std::string_view>({
    "model_type",
    "_name_or_path",
    "new_decoder_architecture",
    "multi_query",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "v_head_dim",
    "shared_expert_intermediate_size",
    "hidden_act",
    "activation_function",
    "hidden_activation",
    "activation",
    "tie_word_embeddings",
    "resid_pdrop",
    "hidden_dropout_prob",
    "hidden_dropout",
    "dropout",
    "position_embedding_type",
    "is_decoder",
    "is_encoder_decoder",
    "_attn_implementation",
    "attn_implementation",
});

/// Of these 1 means that every layer is alike.
constexpr auto kSteps = std::to_array<std::string_view>({"decoder_sparse_step", "moe_layer_freq"});

bool says_no(std::string_view field, const Json& value) {
  if (value.is_null() || value == Json(false) || value == Json(0)) return true;
  if (value == Json("default")) return true;
  if (value.is_string() || value.is_structured()) {
    return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
  }
  return value == Json(1) && std::ranges::find(kSteps, field) != kSteps.end();
}

}  // namespace

std::vector<std::string> uncounted_fields(const Json& config,
                                          const std::vector<std::string_view>& counted) {
  std::vector<std::string> fields;
  const Json width = config.value("hidden_size", Json());
  for (const auto& [field, value] : config.items()) {
    if (std::ranges::binary_search(kHarmless, std::string_view(field))) continue;
    if (std::ranges::find(kRead, field) != kRead.end() || says_no(field, value)) continue;
    if (std::ranges::find(counted, field) != counted.end()) continue;
    if (field == "word_embed_proj_dim" && value == width) continue;  // OPT's, but for one size.
    fields.push_back(field);
  }
  return fields;
}

bool is_gating_activation(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "silu" || lower == "swish" || lower.find("glu") != std::string::npos;
}

}  // namespace corro::plan
