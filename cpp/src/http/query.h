// The part of a request's target behind the "?". Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace corro::http {

/// Values by name.
using Query = std::map<std::string, std::string, std::less<>>;

/// Decodes "place=3&search=two+words%21". The first of several values of a name counts; "%" without
/// two hexadecimal digits behind it stands for itself.
[[nodiscard]] Query parse_query(std::string_view text);

/// The value of this name; "": there is none.
[[nodiscard]] std::string_view value_of(const Query& query, std::string_view name);
/// The same as a whole number; none: there is no value. INVALID_ARGUMENT unless it is from `least` to
/// `most`.
[[nodiscard]] Result<std::optional<uint64_t>> number_of(const Query& query, std::string_view name,
                                                        uint64_t least, uint64_t most);

}  // namespace corro::http
