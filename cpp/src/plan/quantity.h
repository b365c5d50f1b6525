// Amounts as people write them: "80 GiB", "312 TFLOP/s", "200 Gbit/s", "5 us". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace corro::plan {

/// What an amount is of, and the base unit that plain numbers are in.
enum class Unit : uint8_t { kBytes, kBytesPerSecond, kFlopsPerSecond, kSeconds };

/// Returns "bytes", "bytes/s", "FLOP/s" or "seconds".
[[nodiscard]] std::string_view name_of(Unit unit);
/// Returns text that parse_quantity() takes, for messages.
[[nodiscard]] std::string_view example_of(Unit unit);

/// Both ends are inside.
struct RealRange {
  double least;
  double most;
  [[nodiscard]] bool holds(double value) const { return value >= least && value <= most; }
};

/// Parses a number, perhaps a space, and a unit with a prefix: k, M, G, T, P, E for powers of 1000,
/// Ki to Ei for powers of 1024, and m, u, n for parts of a second. Bytes are B, bits are bit or b,
/// operations are FLOP/s, FLOPS or FLOP. A number alone is in base units. Returns nothing for
/// anything else; not-a-number and infinity are no numbers.
[[nodiscard]] std::optional<double> parse_quantity(std::string_view text, Unit unit);

/// Writes an amount so that parse_quantity() gives it back to the bit: with the largest prefix of
/// 1000 that allows it, or without unit.
[[nodiscard]] std::string quantity_text(double amount, Unit unit);

}  // namespace corro::plan
