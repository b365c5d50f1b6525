// YAML from outside, as the value that JSON gives, so that the same readers read both: the core
// schema of YAML 1.2, without anchors, aliases and tags, with limits, and with lines for messages.
//
//   CORRO_ASSIGN(const Json document, parse_yaml(text, "cluster.yaml"));
//   Reading reading("cluster.yaml", text);       // Its errors say "cluster.yaml:12: hosts[0]: ..."
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"
#include "plan/json.h"

namespace corro::plan {

inline constexpr size_t kMostYamlBytes = kMostJsonBytes;
/// Each takes up to 60 bytes once it is read, however short it is in the text.
inline constexpr size_t kMostYamlValues = size_t{4} << 20U;

/// Parses a document. INVALID_ARGUMENT "name:line: ..." for more than kMostYamlBytes, text that is
/// no YAML, nesting beyond kMostJsonDepth, more than kMostYamlValues, a second document, a field
/// that comes twice in one object, a field name that is no text, an anchor, an alias, a tag. An
/// empty document is null. Not-a-number and infinity are numbers here: who reads them refuses them.
[[nodiscard]] Result<Json> parse_yaml(std::string_view text, std::string_view name);

/// The line, from 1, on which a place begins in YAML or JSON text, or if it is not there the
/// nearest place around it; 0 for the whole document. Reads the text again: for messages.
[[nodiscard]] size_t line_of(std::string_view text, const Place& place);

}  // namespace corro::plan
