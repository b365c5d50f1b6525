// Amounts for people: three digits and a unit. Pure. (quantity.h writes them to the bit.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace corro::plan {

/// "12.3 s", "4.56 ms"; 0 is "0 s".
[[nodiscard]] std::string seconds_text(double seconds);
/// "34.1 days", "5.20 h", "12 min".
[[nodiscard]] std::string hours_text(double hours);
/// "61.2 GiB".
[[nodiscard]] std::string bytes_text(double bytes);
/// "175 G", "1.02 k": with prefixes of 1000.
[[nodiscard]] std::string count_text(double count);
/// "1 800", "12.5": in the cluster's currency.
[[nodiscard]] std::string money_text(double amount);
/// "52.1 %", of a fraction.
[[nodiscard]] std::string percent_text(double fraction);
/// "1 234 567".
[[nodiscard]] std::string integer_text(uint64_t number);
/// "1 layer", "96 layers".
[[nodiscard]] std::string counted(uint64_t number, std::string_view noun);
/// Numbers 4 and 9 are "4-9", 4 and 4 "4".
[[nodiscard]] std::string range_text(uint64_t first, uint64_t last);

/// Terminal columns, at one for each UTF-8 character.
[[nodiscard]] size_t columns_of(std::string_view text);
/// At most `columns` columns, the last one "…" where something is left out.
[[nodiscard]] std::string clipped(std::string_view text, size_t columns);

}  // namespace corro::plan
