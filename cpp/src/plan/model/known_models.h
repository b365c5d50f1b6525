// Models that have a name: `corro plan --model gpt3-175b`.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "plan/model/model_file.h"

namespace corro::plan {

struct KnownModel {
  std::string_view name;
  std::string_view shape;  ///< Fields of the short form.
  bool is_llama;           ///< And those that Llama and its relatives share.
  double parameters;       ///< As published, or as the published weights have.
  std::string_view source;
};

[[nodiscard]] std::span<const KnownModel> known_models();
/// NOT_FOUND "there is no model "x"; did you mean y?" for a name that is not known.
[[nodiscard]] Result<Model> make_known_model(std::string_view name,
                                             const ModelOptions& options = {});

}  // namespace corro::plan
