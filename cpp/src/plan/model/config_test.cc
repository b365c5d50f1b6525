#include "plan/model/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/model/known_models.h"
#include "plan/yaml.h"

namespace corro::plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// YAML is near enough to JSON to write a config.json shortly.
TransformerShape shape_of(const std::string& text, const ModelOptions& options = {}) {
  const Json document = parse_yaml(text, "config.json").value();
  const auto shape = shape_from_config(document, "config.json", text, options);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return shape.ok() ? *shape : TransformerShape{};
}

double parameters_of(const std::string& text) {
  return static_cast<double>(parameter_count(make_transformer(shape_of(text))));
}

TEST(KnownModels, HaveTheParametersThatWerePublished) {
  for (const KnownModel& known : known_models()) {
    SCOPED_TRACE(known.name);
    const auto model = make_known_model(known.name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->name, known.name);
    EXPECT_FALSE(known.source.empty());
    const auto parameters = static_cast<double>(parameter_count(*model));
    // "1.3b" is a name, not a count.
    const double error = known.name.starts_with("gpt3-") && known.parameters < 20e9 ? 0.02 : 0.01;
    EXPECT_NEAR(parameters / known.parameters, 1, error);
  }
  EXPECT_EQ(parameter_count(make_known_model("gpt2-small").value()), 124'439'808);
}

TEST(KnownModels, OthersAreNotFound) {
  EXPECT_EQ(make_known_model("gpt3-175").status().message(),
            "there is no model \"gpt3-175\"; did you mean gpt3-175b?");
  EXPECT_EQ(make_known_model("resnet50").status().message(), "there is no model \"resnet50\"");
  EXPECT_EQ(make_known_model("").status().code(), Code::kNotFound);
}

TEST(KnownModels, CanBeGivenAnotherSequence) {
  EXPECT_EQ(make_known_model("llama3-8b", {.sequence = 128})->sequence, 128);
}

// The configurations below are those of the published weights, cut to what matters.

TEST(Config, OfGpt2) {
  const std::string text = R"({model_type: gpt2, n_layer: 12, n_embd: 768, n_head: 12, n_ctx: 1024,
      n_positions: 1024, n_inner: null, vocab_size: 50257, resid_pdrop: 0.1})";
  const TransformerShape shape = shape_of(text);
  EXPECT_EQ(shape.name, "gpt2");
  EXPECT_EQ(shape.feed_forward, 0);
  EXPECT_TRUE(shape.tied && shape.learned_positions && shape.dropout && !shape.gated);
  EXPECT_EQ(parameters_of(text), 124'439'808);
}

TEST(Config, OfLlama) {
  const std::string text = R"({"model_type": "llama", "_name_or_path": "meta-llama/Llama-3.1-8B",
      "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
      "tie_word_embeddings": false, "attention_dropout": 0.0, "hidden_act": "silu"})";
  const TransformerShape shape = shape_of(text, {.sequence = 8192});
  EXPECT_EQ(shape.name, "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.sequence, 8192);
  EXPECT_TRUE(shape.gated && !shape.tied && !shape.learned_positions && !shape.dropout);
  EXPECT_TRUE(shape.flash_attention);
  EXPECT_EQ(parameters_of(text), 8'030'261'248);
}

TEST(Config, OfLlamaWithAnotherTypeIsGuessed) {
  const std::string fields = R"(hidden_size: 4096, intermediate_size: 14336,
      num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, vocab_size: 128256,
      max_position_embeddings: 8192, rms_norm_eps: 1e-05, rope_theta: 5e5,
      tie_word_embeddings: false})";
  EXPECT_EQ(parameters_of("{model_type: newer_llama, " + fields), 8'030'261'248);
  EXPECT_EQ(parameters_of("{" + fields), 8'030'261'248);
  EXPECT_EQ(parameters_of("{model_type: many, text_config: {" + fields + "}"), 8'030'261'248);
  EXPECT_FALSE(shape_of("{_attn_implementation: eager, " + fields).flash_attention);
}

TEST(Config, OfMixtral) {
  EXPECT_NEAR(parameters_of(R"({model_type: mixtral, hidden_size: 4096, intermediate_size: 14336,
      num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, vocab_size: 32000,
      max_position_embeddings: 32768, num_local_experts: 8, num_experts_per_tok: 2})"),
              46.703e9, 1e7);
}

TEST(Config, OfQwenWithExperts) {
  EXPECT_NEAR(parameters_of(R"({model_type: qwen3_moe, hidden_size: 4096, intermediate_size: 12288,
      moe_intermediate_size: 1536, num_attention_heads: 64, num_hidden_layers: 94, head_dim: 128,
      num_key_value_heads: 4, vocab_size: 151936, max_position_embeddings: 40960, num_experts: 128,
      num_experts_per_tok: 8, tie_word_embeddings: false})"),
              235.09e9, 1e9);
  const TransformerShape shape = shape_of(R"({model_type: qwen2_moe, hidden_size: 2048,
      intermediate_size: 5632, moe_intermediate_size: 1408, shared_expert_intermediate_size: 5632,
      num_attention_heads: 16, num_hidden_layers: 24, num_key_value_heads: 16, vocab_size: 151936,
      max_position_embeddings: 8192, num_experts: 60, num_experts_per_tok: 4})");
  EXPECT_EQ(shape.shared_experts, 4);
  EXPECT_EQ(shape.experts, 60);
}

TEST(Config, OfDeepSeekTakesCompressedKeysAsFewHeads) {
  const std::string text = R"({model_type: deepseek_v3, hidden_size: 7168, intermediate_size: 18432,
      moe_intermediate_size: 2048, num_attention_heads: 128, num_key_value_heads: 128,
      num_hidden_layers: 61, first_k_dense_replace: 3, n_routed_experts: 256, n_shared_experts: 1,
      num_experts_per_tok: 8, kv_lora_rank: 512, q_lora_rank: 1536, qk_nope_head_dim: 128,
      qk_rope_head_dim: 64, v_head_dim: 128, vocab_size: 129280, max_position_embeddings: 163840})";
  const TransformerShape shape = shape_of(text);
  EXPECT_EQ(shape.kv_heads, 2);  // 512 + 64 elements a token, taken as 2 * 2 * 128.
  EXPECT_EQ(shape.head_size, 128);
  EXPECT_EQ(shape.dense_layers, 3);
  EXPECT_NEAR(parameters_of(text) / 671.03e9, 1, 0.01);
}

TEST(Config, OfFalconAndItsHeads) {
  const std::string old = R"({model_type: falcon, hidden_size: 4544, num_attention_heads: 71,
      num_hidden_layers: 32, vocab_size: 65024, multi_query: true})";
  EXPECT_EQ(shape_of(old).kv_heads, 1);
  EXPECT_EQ(shape_of(old).sequence, 2048);
  EXPECT_NEAR((parameters_of(old) + 65024.0 * 4544) / 7.217e9, 1, 0.01);
  const std::string large = R"({model_type: falcon, hidden_size: 8192, num_attention_heads: 128,
      num_hidden_layers: 60, vocab_size: 65024, multi_query: true, num_kv_heads: 8,
      new_decoder_architecture: true})";
  EXPECT_EQ(shape_of(large).kv_heads, 8);
  // The published weights hold the table of the embedding a second time.
  EXPECT_NEAR((parameters_of(large) + 65024.0 * 8192) / 41.84e9, 1, 0.01);
}

TEST(Config, OfOlderModels) {
  EXPECT_NEAR(parameters_of(R"({model_type: opt, hidden_size: 4096, ffn_dim: 16384,
      num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 50272,
      max_position_embeddings: 2048, dropout: 0.1})") /
                  6.658e9,
              1, 0.01);
  EXPECT_NEAR(parameters_of(R"({model_type: bloom, hidden_size: 14336, n_head: 112, n_layer: 70,
      vocab_size: 250880, seq_length: 2048, hidden_dropout: 0.0})") /
                  176.25e9,
              1, 0.01);
  EXPECT_NEAR(parameters_of(R"({model_type: gpt_neox, hidden_size: 6144, intermediate_size: 24576,
      num_attention_heads: 64, num_hidden_layers: 44, vocab_size: 50432,
      max_position_embeddings: 2048, tie_word_embeddings: false})") /
                  20.55e9,
              1, 0.01);
  EXPECT_NEAR(parameters_of(R"({model_type: bert, hidden_size: 1024, intermediate_size: 4096,
      num_attention_heads: 16, num_hidden_layers: 24, vocab_size: 30522,
      max_position_embeddings: 512, hidden_dropout_prob: 0.1})") /
                  335.1e6,
              1, 0.01);
}

/// The remarks on a config.json, without its name.
std::vector<std::string> remarks_of(const std::string& text) {
  std::vector<std::string> remarks;
  (void)shape_of(text, {.remarks = &remarks});
  for (std::string& remark : remarks) {
    EXPECT_TRUE(remark.starts_with("config.json: ")) << remark;
    remark.erase(0, 13);
  }
  return remarks;
}

struct Published {
  const char* name;
  const char* config;
  double parameters;
};

/// What the published weights have, without a remark.
TEST(Config, OfKnownTypesHasThePublishedParameters) {
  const Published all[] = {
      {"OLMo-7B",
       R"({"model_type": "olmo", "hidden_size": 4096, "intermediate_size": 11008,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "hidden_act": "silu", "vocab_size": 50304, "max_position_embeddings": 2048,
           "tie_word_embeddings": false, "clip_qkv": null, "rope_theta": 10000.0})",
       6.888e9},
      {"Mistral-7B-v0.1",
       R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
           "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
           "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
           "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32000})",
       7.2417e9},
      {"Qwen2-7B",
       R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
           "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
           "hidden_act": "silu", "vocab_size": 152064, "max_position_embeddings": 131072,
           "max_window_layers": 28, "use_sliding_window": false, "tie_word_embeddings": false})",
       7.6156e9},
      {"Qwen3-8B",
       R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128,
           "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
           "attention_bias": false, "hidden_act": "silu", "vocab_size": 151936,
           "max_position_embeddings": 40960, "tie_word_embeddings": false})",
       8.1907e9},
      {"gemma-7b",
       R"({"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "head_dim": 256,
           "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
           "hidden_activation": "gelu_pytorch_tanh", "vocab_size": 256000,
           "max_position_embeddings": 8192})",
       8.5377e9},
      {"phi-2",
       R"({"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
           "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "gelu_new",
           "vocab_size": 51200, "max_position_embeddings": 2048, "partial_rotary_factor": 0.4,
           "tie_word_embeddings": false})",
       2.7797e9},
      {"Phi-3-mini",
       R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "hidden_act": "silu", "vocab_size": 32064, "max_position_embeddings": 4096,
           "tie_word_embeddings": false})",
       3.8211e9},
      {"stablelm-3b-4e1t",
       R"({"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "hidden_act": "silu", "vocab_size": 50304, "max_position_embeddings": 4096,
           "tie_word_embeddings": false, "use_qkv_bias": false, "partial_rotary_factor": 0.25})",
       2.7954e9},
      {"starcoder2-3b",
       R"({"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288,
           "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
           "hidden_act": "gelu_pytorch_tanh", "mlp_type": "default", "norm_type": "layer_norm",
           "vocab_size": 49152, "max_position_embeddings": 16384})",
       3.03e9},
      {"pythia-6.9b",
       R"({"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384,
           "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "gelu",
           "rotary_pct": 0.25, "use_parallel_residual": true, "vocab_size": 50432,
           "max_position_embeddings": 2048, "tie_word_embeddings": false})",
       6.857e9},
      {"opt-6.7b",
       R"({"model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32,
           "num_hidden_layers": 32, "vocab_size": 50272, "max_position_embeddings": 2048,
           "activation_function": "relu", "word_embed_proj_dim": 4096, "dropout": 0.1})",
       6.658e9},
  };
  for (const Published& each : all) {
    SCOPED_TRACE(each.name);
    EXPECT_NEAR(parameters_of(each.config) / each.parameters, 1, 0.005);
    EXPECT_THAT(remarks_of(each.config), IsEmpty());
  }
}

/// Of what a config.json leaves open, the user is told what was taken for granted.
TEST(Config, OfAnUnlistedTypeIsGatedByItsActivationWithARemark) {
  const auto config = [](const std::string& more) {
    return R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 50304, "max_position_embeddings": 2048,
        "tie_word_embeddings": false, )" +
           more + "}";
  };
  for (const char* act : {"hidden_act: silu", "hidden_activation: swiglu",
                          "activation_function: GeGLU", "activation: gelu_glu"}) {
    const std::string text = config(std::string("model_type: newer, ") + act);
    EXPECT_NEAR(parameters_of(text) / 6.888e9, 1, 0.001) << act;
    EXPECT_THAT(remarks_of(text),
                ElementsAre(AllOf(StartsWith("model_type newer is not known: taken as one with "
                                             "three matrices in a feed-forward layer (the "
                                             "activation is "),
                                  HasSubstr("an untied output layer"))));
  }
  const std::string plain = config("model_type: newer, hidden_act: gelu");
  EXPECT_NEAR(parameters_of(plain) / 5.455e9, 1, 0.001);
  EXPECT_THAT(remarks_of(plain),
              ElementsAre(HasSubstr("two matrices in a feed-forward layer (the "
                                    "activation is gelu), a table of positions")));
  EXPECT_THAT(remarks_of(config("rope_theta: 1e4")),
              ElementsAre(HasSubstr("there is no model_type: taken as one with two matrices in a "
                                    "feed-forward layer (no field says that they are gated)")));
}

TEST(Config, NamesTheFieldsThatItDoesNotCount) {
  const std::string text = R"(model_type: mixtral, hidden_size: 64, intermediate_size: 96,
      num_attention_heads: 4, num_hidden_layers: 2, vocab_size: 100, max_position_embeddings: 32,
      num_local_experts: 8, num_experts_per_tok: 2, decoder_sparse_step: 1, mlp_only_layers: [])";
  EXPECT_THAT(remarks_of("{" + text + "}"), IsEmpty());
  EXPECT_THAT(remarks_of("{" + text + ", moe_every: 2, adapter: {rank: 8}, no_such: false}"),
              ElementsAre("not counted: adapter, moe_every"));
  EXPECT_THAT(remarks_of("{" + text + ", moe_layer_freq: 2}"),
              ElementsAre("not counted: moe_layer_freq"));
  std::string many = "{" + text;
  for (int i = 10; i < 30; ++i) many += fmt::format(", field_{}: 7", i);
  EXPECT_THAT(remarks_of(many + "}"), ElementsAre(EndsWith(", field_21 and 8 more")));
}

/// It has a second attention in each layer: 4 h² more parameters.
TEST(Config, NamesACrossAttentionThatItDoesNotCount) {
  const std::string text = R"({model_type: gpt2, n_embd: 64, n_head: 4, n_layer: 2, n_ctx: 32,
      vocab_size: 100, add_cross_attention: )";
  EXPECT_THAT(remarks_of(text + "false}"), IsEmpty());
  EXPECT_THAT(remarks_of(text + "true}"), ElementsAre("not counted: add_cross_attention"));
}

TEST(Config, OfAModelOfSeveralPartsIsItsTexts) {
  const std::string text = R"("model_type": "llama", "hidden_size": 4096,
      "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
      "vocab_size": 32064, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05)";
  const std::string llava = R"({"model_type": "llava", "image_token_index": 32000,
      "projector_hidden_act": "gelu", "text_config": {)" +
                            text + R"(}, "vision_config": {"hidden_size": 1024}})";
  EXPECT_NEAR(parameters_of(llava) / 6.7389e9, 1, 0.001);
  EXPECT_THAT(remarks_of(llava),
              ElementsAre("the model is that of text_config", "not counted: vision_config"));
  EXPECT_THAT(remarks_of(R"({"llm_config": {)" + text + "}}"),
              ElementsAre("the model is that of llm_config"));
  EXPECT_TRUE(shape_of(R"({"tie_word_embeddings": true, "text_config": {)" + text + "}}").tied);
  EXPECT_THAT(remarks_of("{" + text + R"(, "vision_config": {"hidden_size": 1024}})"),
              ElementsAre("not counted: vision_config"));
}

TEST(Config, OfAnEncoderAndADecoderIsRefused) {
  EXPECT_THAT(read_model(R"({"model_type": "bart", "is_encoder_decoder": true, "d_model": 1024,
      "num_hidden_layers": 12, "num_attention_heads": 16, "vocab_size": 50265,
      "max_position_embeddings": 1024})",
                         "config.json")
                  .status()
                  .message(),
              HasSubstr("is_encoder_decoder: a model of an encoder and a decoder"));
}

TEST(ShortForm, IsTheShapeItself) {
  const TransformerShape shape = shape_of(R"(name: tiny
layers: 3
hidden: 64
heads: 4
kv_heads: 2
head_size: 8
feed_forward: 100
gated: true
vocabulary: 1000
sequence: 32
tied: false
learned_positions: false
dropout: false
flash_attention: true
experts: 5
experts_per_token: 2
shared_experts: 1
expert_feed_forward: 50
dense_layers: 1
)");
  EXPECT_EQ(shape.name, "tiny");
  EXPECT_EQ(shape.layers, 3);
  EXPECT_EQ(shape.hidden, 64);
  EXPECT_EQ(shape.heads, 4);
  EXPECT_EQ(shape.kv_heads, 2);
  EXPECT_EQ(shape.head_size, 8);
  EXPECT_EQ(shape.feed_forward, 100);
  EXPECT_EQ(shape.vocabulary, 1000);
  EXPECT_EQ(shape.sequence, 32);
  EXPECT_EQ(shape.experts, 5);
  EXPECT_EQ(shape.experts_per_token, 2);
  EXPECT_EQ(shape.shared_experts, 1);
  EXPECT_EQ(shape.expert_feed_forward, 50);
  EXPECT_EQ(shape.dense_layers, 1);
  EXPECT_TRUE(shape.gated && !shape.tied && !shape.learned_positions && !shape.dropout);
  EXPECT_TRUE(shape.flash_attention);
}

TEST(ShortForm, NeedsFiveNumbersAndMayBeGivenTheSequence) {
  const std::string text = "layers: 2\nhidden: 64\nheads: 4\nvocabulary: 100\n";
  const TransformerShape shape = shape_of(text + "sequence: 16\n");
  EXPECT_EQ(shape.name, "transformer");
  EXPECT_TRUE(shape.tied && shape.learned_positions && shape.dropout);
  EXPECT_FALSE(shape.gated || shape.flash_attention);
  EXPECT_EQ(shape_of(text, {.sequence = 8}).sequence, 8);
  EXPECT_EQ(read_model(text, "m.yaml").status().message(),
            "m.yaml: sequence: is missing; --sequence gives it, too (in Python sequence=)");
}

}  // namespace
}  // namespace corro::plan
