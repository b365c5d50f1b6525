#include "plan/model/family.h"

#include <algorithm>
#include <iterator>

namespace corro::plan {
namespace {

constexpr Family kFamilies[] = {
    {"gpt2", false, true, true, true},          {"gpt_bigcode", false, true, true, true},
    {"gpt_neo", false, true, true, false},      {"gpt_neox", false, false, false, false},
    {"gptj", false, false, false, false},       {"opt", false, true, true, true},
    {"bert", false, true, true, true},          {"roberta", false, true, true, true},
    {"bloom", false, true, false, false},       {"falcon", false, true, false, false},
    {"mpt", false, true, false, false},         {"phi", false, false, false, false},
    {"llama", true, false, false, false},       {"mistral", true, false, false, false},
    {"mixtral", true, false, false, false},     {"qwen2", true, false, false, false},
    {"qwen2_moe", true, false, false, false},   {"qwen3", true, false, false, false},
    {"qwen3_moe", true, false, false, false},   {"deepseek_v2", true, false, false, false},
    {"deepseek_v3", true, false, false, false}, {"gemma", true, true, false, false},
    {"gemma2", true, true, false, false},       {"gemma3_text", true, true, false, false},
    {"phi3", true, false, false, false},        {"olmo2", true, false, false, false},
    {"granite", true, true, false, false},      {"cohere", true, true, false, false},
    {"cohere2", true, true, false, false},      {"olmo", true, false, false, false},
    {"stablelm", true, false, false, false},    {"starcoder2", false, true, false, false},
    {"codegen", false, false, false, false},    {"nemotron", false, false, false, false},
};

}  // namespace

std::optional<Family> find_family(std::string_view type) {
  const auto* known = std::ranges::find(kFamilies, type, &Family::type);
  if (known == std::end(kFamilies)) return {};
  return *known;
}

}  // namespace corro::plan
