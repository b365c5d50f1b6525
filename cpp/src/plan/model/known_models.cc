#include "plan/model/known_models.h"

#include <set>
#include <string>

#include <fmt/format.h>

#include "base/nearest_name.h"
#include "plan/model/config.h"
#include "plan/yaml.h"

namespace corro::plan {
namespace {

constexpr std::string_view kGpt2 = "GPT-2's config.json";
// Megatron-LM pads GPT-2's vocabulary to 51 200 and gives each size heads of 128 (1.3b: 16).
constexpr std::string_view kGpt3 = "Brown et al. 2020, table 2.1, with Megatron-LM's vocabulary";
constexpr std::string_view kLlama2 = "Touvron et al. 2023, config.json";
constexpr std::string_view kLlama3 = "Llama Team 2024, table 3, config.json";
constexpr std::string_view kConfig = "config.json of the published weights";

constexpr KnownModel kModels[] = {
    {"gpt2-small", "layers: 12, hidden: 768, heads: 12, vocabulary: 50257, sequence: 1024", false,
     124.44e6, kGpt2},
    {"gpt2-medium", "layers: 24, hidden: 1024, heads: 16, vocabulary: 50257, sequence: 1024", false,
     354.82e6, kGpt2},
    {"gpt2-large", "layers: 36, hidden: 1280, heads: 20, vocabulary: 50257, sequence: 1024", false,
     774.03e6, kGpt2},
    {"gpt2-xl", "layers: 48, hidden: 1600, heads: 25, vocabulary: 50257, sequence: 1024", false,
     1557.6e6, kGpt2},
    {"gpt3-1.3b", "layers: 24, hidden: 2048, heads: 16, vocabulary: 51200, sequence: 2048", false,
     1.3e9, kGpt3},
    {"gpt3-2.7b", "layers: 32, hidden: 2560, heads: 32, vocabulary: 51200, sequence: 2048", false,
     2.7e9, kGpt3},
    {"gpt3-6.7b", "layers: 32, hidden: 4096, heads: 32, vocabulary: 51200, sequence: 2048", false,
     6.7e9, kGpt3},
    {"gpt3-13b", "layers: 40, hidden: 5120, heads: 40, vocabulary: 51200, sequence: 2048", false,
     13e9, kGpt3},
    {"gpt3-175b", "layers: 96, hidden: 12288, heads: 96, vocabulary: 51200, sequence: 2048", false,
     174.6e9, "Narayanan et al., SC'21, table 1"},
    {"megatron-530b", "layers: 105, hidden: 20480, heads: 128, vocabulary: 51200, sequence: 2048",
     false, 529.6e9, "Narayanan et al., SC'21, table 1"},
    {"megatron-1t", "layers: 128, hidden: 25600, heads: 160, vocabulary: 51200, sequence: 2048",
     false, 1008.0e9, "Narayanan et al., SC'21, table 1"},
    {"bert-large", "layers: 24, hidden: 1024, heads: 16, vocabulary: 30522, sequence: 512", false,
     335.1e6, kConfig},
    {"bloom-176b",
     "layers: 70, hidden: 14336, heads: 112, vocabulary: 250880, sequence: 2048, "
     "learned_positions: false, dropout: false",
     false, 176.25e9, kConfig},
    {"llama2-7b",
     "layers: 32, hidden: 4096, heads: 32, feed_forward: 11008, vocabulary: 32000, sequence: 4096",
     true, 6.738e9, kLlama2},
    {"llama2-13b",
     "layers: 40, hidden: 5120, heads: 40, feed_forward: 13824, vocabulary: 32000, sequence: 4096",
     true, 13.016e9, kLlama2},
    {"llama2-70b",
     "layers: 80, hidden: 8192, heads: 64, kv_heads: 8, feed_forward: 28672, vocabulary: 32000, "
     "sequence: 4096",
     true, 68.977e9, kLlama2},
    {"llama3-8b",
     "layers: 32, hidden: 4096, heads: 32, kv_heads: 8, feed_forward: 14336, vocabulary: 128256, "
     "sequence: 8192",
     true, 8.030e9, kLlama3},
    {"llama3-70b",
     "layers: 80, hidden: 8192, heads: 64, kv_heads: 8, feed_forward: 28672, vocabulary: 128256, "
     "sequence: 8192",
     true, 70.554e9, kLlama3},
    {"llama3-405b",
     "layers: 126, hidden: 16384, heads: 128, kv_heads: 8, feed_forward: 53248, "
     "vocabulary: 128256, sequence: 8192",
     true, 405.85e9, kLlama3},
    {"mistral-7b",
     "layers: 32, hidden: 4096, heads: 32, kv_heads: 8, feed_forward: 14336, vocabulary: 32000, "
     "sequence: 8192",
     true, 7.242e9, kConfig},
    {"mixtral-8x7b",
     "layers: 32, hidden: 4096, heads: 32, kv_heads: 8, feed_forward: 14336, vocabulary: 32000, "
     "sequence: 32768, experts: 8, experts_per_token: 2",
     true, 46.70e9, kConfig},
    {"mixtral-8x22b",
     "layers: 56, hidden: 6144, heads: 48, kv_heads: 8, feed_forward: 16384, vocabulary: 32768, "
     "sequence: 65536, experts: 8, experts_per_token: 2",
     true, 140.63e9, kConfig},
    {"qwen3-235b-a22b",
     "layers: 94, hidden: 4096, heads: 64, kv_heads: 4, head_size: 128, vocabulary: 151936, "
     "sequence: 40960, experts: 128, experts_per_token: 8, expert_feed_forward: 1536",
     true, 235.09e9, kConfig},
    // Keys and values are compressed (MLA): see config.cc.
    {"deepseek-v3",
     "layers: 61, hidden: 7168, heads: 128, kv_heads: 2, head_size: 128, feed_forward: 18432, "
     "vocabulary: 129280, sequence: 4096, experts: 256, experts_per_token: 8, shared_experts: 1, "
     "expert_feed_forward: 2048, dense_layers: 3",
     true, 671.03e9, "DeepSeek-AI 2024, section 4.2; without the layer that predicts two tokens"},
};

Result<Model> parse_shape(const KnownModel& known, const ModelOptions& options) {
  constexpr std::string_view kLlama =
      ", gated: true, tied: false, learned_positions: false, dropout: false, flash_attention: true";
  const std::string text =
      fmt::format("{{name: {}, {}{}}}", known.name, known.shape, known.is_llama ? kLlama : "");
  CORRO_ASSIGN(const Json document, parse_yaml(text, known.name));
  return model_from_config(document, known.name, text, options);
}

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

Result<Model> make_known_model(std::string_view name, const ModelOptions& options) {
  std::set<std::string> names;
  for (const KnownModel& known : kModels) {
    names.emplace(known.name);
    if (known.name != name) continue;
    return parse_shape(known, options);
  }
  const std::string nearest = nearest_name(std::string(name), names);
  return Status(Code::kNotFound,
                fmt::format("there is no model \"{}\"{}", name,
                            nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

}  // namespace corro::plan
