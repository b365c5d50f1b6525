// How a config.json becomes a shape. Families of models name the same number differently, so each
// field of a shape has a list of names, and the first one that the file has counts. What a config
// does not say (whether feed-forward layers are gated, whether positions are learned) follows from
// `model_type`; of a type that is not in the table it follows from fields that only some have, and
// a remark says what was taken for granted. A remark names the fields that are not counted, too.
//
// Attention with compressed keys and values (MLA: DeepSeek) has no counterpart in a shape. It is
// taken as attention with so few heads of keys and values that they are as large as the compressed
// ones. That counts some parameters too many in each layer (DeepSeek-V3: 0.5 % of the model), and
// the products of scores 20 % too small.
#include "plan/model/config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/model/config_fields.h"
#include "plan/model/family.h"

namespace corro::plan {
namespace {

struct Number {
  std::string_view name;
  uint32_t TransformerShape::* member;
  int64_t most;  ///< So that products of all of them fit into 64 bits.
  bool is_needed = false;
  std::vector<std::string_view> names = {};  ///< In config.json.
};

std::vector<Number> numbers() {
  using Shape = TransformerShape;
  return {
      {"layers",
       &Shape::layers,
       kMostLayers - 2,
       true,
       {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
      {"hidden", &Shape::hidden, 1 << 20, true, {"hidden_size", "n_embd", "d_model"}},
      {"heads", &Shape::heads, 1 << 16, true, {"num_attention_heads", "n_head", "n_heads"}},
      {"kv_heads", &Shape::kv_heads, 1 << 16, false, {"num_key_value_heads", "num_kv_heads"}},
      {"head_size", &Shape::head_size, 1 << 16, false, {"head_dim"}},
      {"feed_forward",
       &Shape::feed_forward,
       1 << 24,
       false,
       {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}},
      {"vocabulary", &Shape::vocabulary, 1 << 28, true, {"vocab_size"}},
      {"sequence",
       &Shape::sequence,
       1 << 27,
       true,
       {"max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"}},
      {"experts",
       &Shape::experts,
       1 << 16,
       false,
       {"num_local_experts", "n_routed_experts", "num_experts"}},
      {"experts_per_token", &Shape::experts_per_token, 1 << 16, false, {"num_experts_per_tok"}},
      {"shared_experts", &Shape::shared_experts, 64, false, {"n_shared_experts"}},
      {"expert_feed_forward",
       &Shape::expert_feed_forward,
       1 << 24,
       false,
       {"moe_intermediate_size"}},
      {"dense_layers", &Shape::dense_layers, kMostLayers, false, {"first_k_dense_replace"}},
  };
}

constexpr std::string_view kSequenceHint = "; --sequence gives it, too (in Python sequence=)";

/// Where models of several parts keep that of text.
constexpr std::string_view kTextParts[] = {"text_config", "llm_config", "language_config"};

/// Which name of a number the file used, for what check_shape() says of the number.
using UsedNames = std::vector<std::pair<std::string_view, std::string_view>>;

Status refuse_shape(const Status& status, const UsedNames& used, Reading& reading) {
  const std::string& message = status.message();
  const size_t colon = message.find(": ");
  std::string_view field = std::string_view(message).substr(0, colon);
  for (const auto& [name, in_file] : used) {
    if (name == field) field = in_file;
  }
  reading.fail({nullptr, field, {}}, std::string_view(message).substr(colon + 2));
  return reading.status();
}

class ShortForm {
 public:
  ShortForm(const Json& document, Reading& reading)
      : object_(document, {}, reading,
                {"name", "layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward",
                 "gated", "vocabulary", "sequence", "tied", "learned_positions", "dropout",
                 "flash_attention", "experts", "experts_per_token", "shared_experts",
                 "expert_feed_forward", "dense_layers"}),
        reading_(reading) {}

  TransformerShape read(const ModelOptions& options);

 private:
  ObjectReader object_;
  Reading& reading_;
};

TransformerShape ShortForm::read(const ModelOptions& options) {
  TransformerShape shape;
  shape.name = object_.text("name", shape.name);
  if (!is_name(shape.name)) reading_.fail({nullptr, "name", {}}, kNameRule);
  for (const Number& number : numbers()) {
    const bool is_needed = number.is_needed && (number.name != "sequence" || options.sequence == 0);
    if (number.name == "sequence" && is_needed && object_.find(number.name) == nullptr) {
      reading_.fail({nullptr, number.name, {}}, fmt::format("is missing{}", kSequenceHint));
    }
    std::optional<int64_t> fallback;
    if (!is_needed) fallback = 0;
    shape.*number.member = static_cast<uint32_t>(
        object_.integer(number.name, {number.is_needed ? 1 : 0, number.most}, fallback));
  }
  shape.gated = object_.boolean("gated", shape.gated);
  shape.tied = object_.boolean("tied", shape.tied);
  shape.learned_positions = object_.boolean("learned_positions", shape.learned_positions);
  shape.dropout = object_.boolean("dropout", shape.dropout);
  shape.flash_attention = object_.boolean("flash_attention", shape.flash_attention);
  return shape;
}

class ConfigReader {
 public:
  /// `config` is the document or the part of it that is the text's, which is at `place`.
  ConfigReader(const Json& document, const Json& config, const Place& place, Reading& reading)
      : document_(document), config_(config), place_(place), reading_(reading) {}

  TransformerShape read(const ModelOptions& options);
  [[nodiscard]] const UsedNames& used() const { return used_; }
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  /// Null for a field that is missing or null.
  [[nodiscard]] const Json* find(std::string_view field) const;
  [[nodiscard]] std::string text(std::string_view field) const;
  std::optional<uint32_t> integer(std::string_view field, int64_t least, int64_t most);
  std::optional<bool> boolean(std::string_view field);
  void read_number(const Number& number, bool is_needed, TransformerShape& shape);
  void read_heads(const std::string& type, TransformerShape& shape);
  void read_flags(const std::string& type, TransformerShape& shape);
  [[nodiscard]] std::string activation() const;
  [[nodiscard]] Family guess_family() const;
  void remark_guess(const std::string& type, const TransformerShape& shape);
  void remark_uncounted();

  const Json& document_;
  const Json& config_;
  Place place_;
  Reading& reading_;
  UsedNames used_;
  std::vector<std::string> remarks_;
};

const Json* ConfigReader::find(std::string_view field) const {
  const auto found = config_.find(field);
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

std::string ConfigReader::text(std::string_view field) const {
  const Json* value = find(field);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<uint32_t> ConfigReader::integer(std::string_view field, int64_t least, int64_t most) {
  const Json* value = find(field);
  if (value == nullptr) return {};
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number >= static_cast<uint64_t>(least) && number <= static_cast<uint64_t>(most)) {
      return static_cast<uint32_t>(number);
    }
  }
  reading_.fail({&place_, field, {}}, fmt::format("must be an integer from {} to {}", least, most));
  return 0;
}

std::optional<bool> ConfigReader::boolean(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr) return {};
  if (!value->is_boolean()) reading_.fail({&place_, field, {}}, "must be true or false");
  return value->is_boolean() && value->get<bool>();
}

void ConfigReader::read_number(const Number& number, bool is_needed, TransformerShape& shape) {
  for (const std::string_view field : number.names) {
    const std::optional<uint32_t> value = integer(field, number.is_needed ? 1 : 0, number.most);
    if (!value) continue;
    shape.*number.member = *value;
    used_.emplace_back(number.name, field);
    return;
  }
  if (!is_needed) return;
  reading_.fail({&place_, number.names.front(), {}},
                fmt::format("is missing; other names of it are {}{}",
                            fmt::join(number.names.begin() + 1, number.names.end(), ", "),
                            number.name == "sequence" ? kSequenceHint : ""));
}

TransformerShape ConfigReader::read(const ModelOptions& options) {
  TransformerShape shape;
  const std::string type = text("model_type");
  if (boolean("is_encoder_decoder").value_or(false)) {
    reading_.fail({&place_, "is_encoder_decoder", {}},
                  "a model of an encoder and a decoder is not counted; record it in Python");
  }
  for (const std::string& name : {text("_name_or_path"), type, std::string("model")}) {
    if (!is_name(name)) continue;
    shape.name = name;
    break;
  }
  // Falcon and BLOOM have no table of positions, and need not say how long their samples are.
  const bool may_be_any = type == "falcon" || type == "bloom";
  for (const Number& number : numbers()) {
    const bool is_sequence = number.name == "sequence";
    const bool is_known = is_sequence && (may_be_any || options.sequence != 0);
    if (is_sequence && may_be_any) shape.sequence = 2048;
    if (number.names.size() == 1 && number.is_needed && find(number.names[0]) == nullptr) {
      reading_.fail({&place_, number.names[0], {}}, "is missing");
    }
    read_number(number, number.is_needed && !is_known, shape);
  }
  read_heads(type, shape);
  read_flags(type, shape);
  remark_uncounted();
  return shape;
}

void ConfigReader::read_heads(const std::string& type, TransformerShape& shape) {
  const bool is_new_falcon = boolean("new_decoder_architecture").value_or(false);
  const bool is_multi_query = boolean("multi_query").value_or(type == "gpt_bigcode");
  if (is_multi_query && !is_new_falcon) {
    shape.kv_heads = 1;
  } else if (type == "falcon" && !is_new_falcon) {
    shape.kv_heads = 0;
  }
  const std::optional<uint32_t> compressed = integer("kv_lora_rank", 1, 1 << 16);
  if (compressed) {
    const uint32_t rotary = integer("qk_rope_head_dim", 0, 1 << 16).value_or(0);
    shape.head_size = integer("v_head_dim", 1, 1 << 16).value_or(128);
    const uint32_t size = std::max(1U, shape.head_size);
    shape.kv_heads = std::max(1U, (*compressed + rotary + size) / (2 * size));
    while (shape.heads % shape.kv_heads != 0) --shape.kv_heads;
  }
  // Qwen's one shared expert is given by its size.
  const uint32_t shared = integer("shared_expert_intermediate_size", 0, 1 << 24).value_or(0);
  if (shared != 0 && shape.expert_feed_forward != 0 && shape.shared_experts == 0) {
    shape.shared_experts =
        std::min(64U, (shared + shape.expert_feed_forward - 1) / shape.expert_feed_forward);
  }
}

std::string ConfigReader::activation() const {
  for (const char* field :
       {"hidden_act", "activation_function", "hidden_activation", "activation"}) {
    if (std::string name = text(field); !name.empty()) return name;
  }
  return "";
}

/// For a type that is not in the table.
Family ConfigReader::guess_family() const {
  const bool is_gated =
      find("rms_norm_eps") != nullptr || is_gating_activation(activation());  // As Llama.
  const bool has_rotation = find("rope_theta") != nullptr || find("rope_scaling") != nullptr ||
                            find("rotary_dim") != nullptr || find("rotary_pct") != nullptr;
  return {.type = {},
          .gated = is_gated,
          .tied = true,  // transformers writes tie_word_embeddings only where it is not.
          .learned_positions = !is_gated && !has_rotation,
          .dropout = false};
}

void ConfigReader::remark_guess(const std::string& type, const TransformerShape& shape) {
  const std::string what =
      !is_name(type) ? "there is no model_type" : fmt::format("model_type {} is not known", type);
  const std::string act = activation();
  std::string reason = "no field says that they are gated";
  if (find("rms_norm_eps") != nullptr) {
    reason = "it has rms_norm_eps";
  } else if (is_name(act)) {
    reason = fmt::format("the activation is {}", act);
  }
  remarks_.push_back(fmt::format(
      "{}: taken as one with {} matrices in a feed-forward layer ({}), {} positions and {} output "
      "layer; a short description (docs/planner-inputs.md) says it exactly",
      what, shape.gated ? "three" : "two", reason,
      shape.learned_positions ? "a table of" : "no table of", shape.tied ? "a tied" : "an untied"));
}

/// A model of several parts is its text's, so all else of the document is not counted.
void ConfigReader::remark_uncounted() {
  constexpr size_t kMostNamed = 12;
  std::vector<std::string_view> counted;
  const std::vector<Number> all = numbers();
  for (const Number& number : all)
    counted.insert(counted.end(), number.names.begin(), number.names.end());
  std::vector<std::string> fields = uncounted_fields(config_, counted);
  if (&document_ != &config_) {
    counted.push_back(place_.field);
    for (std::string& part : uncounted_fields(document_, counted)) {
      if (document_[part].is_structured()) fields.push_back(std::move(part));
    }
  }
  std::erase_if(fields, [](const std::string& field) { return !is_name(field); });
  const size_t more = fields.size() - std::min(fields.size(), kMostNamed);
  fields.resize(fields.size() - more);
  if (fields.empty()) return;
  remarks_.push_back(fmt::format("not counted: {}{}", fmt::join(fields, ", "),
                                 more == 0 ? std::string() : fmt::format(" and {} more", more)));
}

void ConfigReader::read_flags(const std::string& type, TransformerShape& shape) {
  const std::optional<Family> known = find_family(type);
  const Family family = known ? *known : guess_family();
  shape.gated = family.gated;
  shape.learned_positions = family.learned_positions;
  const bool is_part = &document_ != &config_;
  const bool has_outer = is_part && find("tie_word_embeddings") == nullptr &&
                         document_.value("tie_word_embeddings", Json()).is_boolean();
  shape.tied = has_outer ? document_["tie_word_embeddings"].get<bool>()
                         : boolean("tie_word_embeddings").value_or(family.tied);
  shape.dropout = family.dropout;
  for (const std::string_view field :
       {"resid_pdrop", "hidden_dropout_prob", "hidden_dropout", "dropout"}) {
    const Json* value = find(field);
    if (value == nullptr) continue;
    if (!value->is_number()) return reading_.fail({&place_, field, {}}, "must be a number");
    shape.dropout = value->get<double>() > 0;
    break;
  }
  if (!known) remark_guess(type, shape);
  // The default of transformers never writes scores to memory.
  shape.flash_attention =
      text("_attn_implementation") != "eager" && text("attn_implementation") != "eager";
}

bool is_short_form(const Json& document) {
  return document.contains("layers") || document.contains("hidden");
}

}  // namespace

Result<TransformerShape> shape_from_config(const Json& document, std::string_view name,
                                           std::string_view text, const ModelOptions& options) {
  Reading reading(name, text);
  TransformerShape shape;
  UsedNames used;
  if (!document.is_object()) {
    reading.fail({}, "must be an object");
  } else if (is_short_form(document)) {
    shape = ShortForm(document, reading).read(options);
  } else {
    const auto* part = std::ranges::find_if(kTextParts, [&](std::string_view field) {
      return document.contains(field) && document[field].is_object();
    });
    const bool is_part = part != std::end(kTextParts);
    const Place place = is_part ? Place{nullptr, *part, {}} : Place{};
    ConfigReader config(document, is_part ? document[*part] : document, place, reading);
    shape = config.read(options);
    used = config.used();
    if (options.remarks != nullptr) {
      if (is_part)
        options.remarks->push_back(fmt::format("{}: the model is that of {}", name, *part));
      for (const std::string& remark : config.remarks())
        options.remarks->push_back(fmt::format("{}: {}", name, remark));
    }
  }
  CORRO_TRY(reading.status());
  if (options.sequence != 0) shape.sequence = options.sequence;
  const Status status = check_shape(shape);
  if (!status.ok()) return refuse_shape(status, used, reading);
  return shape;
}

Result<Model> model_from_config(const Json& document, std::string_view name, std::string_view text,
                                const ModelOptions& options) {
  CORRO_ASSIGN(const TransformerShape shape, shape_from_config(document, name, text, options));
  Model model = make_transformer(shape);
  const Status status = check_totals(model);
  if (!status.ok()) return status.with_context(name);
  return model;
}

}  // namespace corro::plan
