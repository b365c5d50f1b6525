// Families of models, by the model_type of a config.json: what the file does not say of them, or
// only where it differs.
#pragma once

#include <optional>
#include <string_view>

namespace corro::plan {

struct Family {
  std::string_view type;
  bool gated;
  bool tied;
  bool learned_positions;
  bool dropout;
};

/// Nothing for a type that is not known.
[[nodiscard]] std::optional<Family> find_family(std::string_view type);

}  // namespace corro::plan
