// The model's file, version 1 (docs/planner.md): JSON, read with one clear error line. And
// read_model(), which takes the other two forms as well.
//
//   CORRO_ASSIGN(const Model model, read_model(text, "config.json"));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/json.h"
#include "plan/model/model.h"

namespace corro::plan {

inline constexpr uint64_t kModelVersion = 1;
/// The reader of a file need not read more: the parser refuses longer text.
inline constexpr size_t kMostModelBytes = kMostJsonBytes;
inline constexpr uint32_t kMostLayers = 1U << 17U;
inline constexpr uint32_t kMostOperators = 1U << 16U;  ///< Of a layer.

/// A user's wishes beside a description.
struct ModelOptions {
  uint32_t sequence = 0;  ///< Tokens per sample; 0: as described. A recorded model has its own.
  /// Gets what of a config.json was guessed and what is not counted, a line each, with its name in
  /// front; to be shown to the user.
  std::vector<std::string>* remarks = nullptr;
};

/// Reads a model file, a Hugging Face config.json or a short description, in JSON or YAML: one with
/// `corro_model` is the first, one with `layers` or `hidden` the last. INVALID_ARGUMENT
/// "name:line: place: what is wrong".
[[nodiscard]] Result<Model> read_model(std::string_view text, std::string_view name,
                                       const ModelOptions& options = {});

/// Reads a model from the value of a model file, whose text is for the lines of messages.
[[nodiscard]] Result<Model> model_from_json(const Json& document, std::string_view name,
                                            std::string_view text = {});

/// INVALID_ARGUMENT for a model of more than 1e18 parameters or kMostLayers layers, and for tied
/// parameters that are more than those of the first layer or of the last one.
[[nodiscard]] Status check_totals(const Model& model);

}  // namespace corro::plan
