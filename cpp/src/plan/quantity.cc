#include "plan/quantity.h"

#include <cmath>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

namespace corro::plan {
namespace {

struct Prefix {
  std::string_view text;
  double factor;
};
constexpr Prefix kLarge[] = {
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60},
    {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},    {"P", 1e15},    {"E", 1e18},
};
/// Divisors, since 1e-6 is no number of 53 bits.
constexpr Prefix kSmall[] = {{"m", 1e3}, {"u", 1e6}, {"n", 1e9}};

struct Noun {
  std::string_view text;
  Unit unit;
  double factor = 1;
};
constexpr Noun kNouns[] = {
    {"B", Unit::kBytes},
    {"B/s", Unit::kBytesPerSecond},
    {"s", Unit::kSeconds},
    {"bit/s", Unit::kBytesPerSecond, 0.125},
    {"b/s", Unit::kBytesPerSecond, 0.125},
    {"FLOP/s", Unit::kFlopsPerSecond},
    {"FLOPS", Unit::kFlopsPerSecond},
    {"FLOP", Unit::kFlopsPerSecond},
};

/// The number at the start of a text, of digits, point and exponent alone; cuts it off.
std::optional<double> cut_number(std::string_view& text) {
  size_t end = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const auto digits = [&] {
    const size_t before = end;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    return end - before;
  };
  size_t count = digits();
  if (end < text.size() && text[end] == '.') {
    ++end;
    count += digits();
  }
  if (count == 0) return {};
  const size_t mantissa = end;
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    ++end;
    if (end < text.size() && (text[end] == '-' || text[end] == '+')) ++end;
    if (digits() == 0) end = mantissa;  // "2 E..." is a prefix.
  }
  const double number = std::strtod(std::string(text.substr(0, end)).c_str(), nullptr);
  text.remove_prefix(end);
  if (!std::isfinite(number)) return {};
  return number;
}

}  // namespace

std::string_view name_of(Unit unit) {
  constexpr std::string_view kNames[] = {"bytes", "bytes/s", "FLOP/s", "seconds"};
  return kNames[static_cast<size_t>(unit)];
}

std::string_view example_of(Unit unit) {
  constexpr std::string_view kExamples[] = {"80 GiB", "200 Gbit/s", "312 TFLOP/s", "5 us"};
  return kExamples[static_cast<size_t>(unit)];
}

std::optional<double> parse_quantity(std::string_view text, Unit unit) {
  const std::optional<double> number = cut_number(text);
  if (!number || text.empty()) return number;
  if (text.front() == ' ') text.remove_prefix(1);
  for (const Noun& noun : kNouns) {
    if (noun.unit != unit || !text.ends_with(noun.text)) continue;
    const std::string_view prefix = text.substr(0, text.size() - noun.text.size());
    if (prefix.empty()) return *number * noun.factor;
    if (unit == Unit::kSeconds) {
      for (const Prefix& small : kSmall) {
        if (prefix == small.text) return *number / small.factor;
      }
      continue;
    }
    for (const Prefix& large : kLarge) {
      if (prefix == large.text) return *number * (large.factor * noun.factor);
    }
  }
  return {};
}

std::string quantity_text(double amount, Unit unit) {
  constexpr std::string_view kWritten[] = {"B", "B/s", "FLOP/s", "s"};
  const std::string_view noun = kWritten[static_cast<size_t>(unit)];
  const auto fits = [&](const std::string& text) { return parse_quantity(text, unit) == amount; };
  if (unit == Unit::kSeconds) {
    for (const Prefix& small : kSmall) {
      if (amount * small.factor < 1) continue;
      const std::string text = fmt::format("{} {}{}", amount * small.factor, small.text, noun);
      if (amount < 1 && fits(text)) return text;
    }
    return fmt::format("{}", amount);
  }
  for (const Prefix* prefix = std::end(kLarge); prefix-- != std::begin(kLarge) + 6;) {
    if (amount < prefix->factor) continue;
    const std::string text = fmt::format("{} {}{}", amount / prefix->factor, prefix->text, noun);
    if (text.size() <= 16 && fits(text)) return text;
  }
  return fmt::format("{}", amount);
}

}  // namespace corro::plan
