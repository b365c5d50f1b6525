// Models that are described by a few numbers: Hugging Face's config.json, and corro's short form.
#pragma once

#include <string_view>

#include "base/status.h"
#include "plan/json.h"
#include "plan/model/model_file.h"
#include "plan/model/transformer.h"

namespace corro::plan {

/// Reads a shape. A document with `layers` or `hidden` is the short form: fields are those of
/// TransformerShape, strictly. Anything else is a config.json, whose fields are looked for under
/// the names that models give them; options.remarks gets those that may count and do not. `text` is
/// for the lines of messages. INVALID_ARGUMENT "name:line: field: ...".
[[nodiscard]] Result<TransformerShape> shape_from_config(const Json& document,
                                                         std::string_view name,
                                                         std::string_view text,
                                                         const ModelOptions& options = {});
/// The same, as a model.
[[nodiscard]] Result<Model> model_from_config(const Json& document, std::string_view name,
                                              std::string_view text,
                                              const ModelOptions& options = {});

}  // namespace corro::plan
