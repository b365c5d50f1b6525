#include "plan/amounts.h"

#include <cmath>
#include <span>

#include <fmt/format.h>

namespace corro::plan {
namespace {

std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e6 || size < 1e-3) return fmt::format("{:.2e}", value);
  // Bounds lie where rounding makes one digit more.
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

struct Scale {
  double factor;
  std::string_view unit;
};

/// The largest unit of which the amount has one at least, or the last.
std::string scaled(double amount, std::span<const Scale> scales) {
  if (!std::isfinite(amount)) return fmt::format("{}", amount);
  for (const Scale& scale : scales) {
    if (std::abs(amount) < scale.factor * 0.9995 && &scale != &scales.back()) continue;
    return fmt::format("{}{}", three_digits(amount / scale.factor), scale.unit);
  }
  return {};
}

}  // namespace

std::string seconds_text(double seconds) {
  constexpr Scale kScales[] = {{1, " s"}, {1e-3, " ms"}, {1e-6, " us"}};
  return seconds == 0 ? "0 s" : scaled(seconds, kScales);
}

std::string hours_text(double hours) {
  constexpr Scale kDays[] = {{24, " days"}};
  constexpr Scale kScales[] = {{1, " h"}, {1.0 / 60, " min"}};
  if (hours >= 48) return scaled(hours, kDays);
  return scaled(hours, kScales);
}

std::string bytes_text(double bytes) {
  constexpr Scale kScales[] = {{0x1p60, " EiB"}, {0x1p50, " PiB"}, {0x1p40, " TiB"},
                               {0x1p30, " GiB"}, {0x1p20, " MiB"}, {0x1p10, " KiB"},
                               {1, " B"}};
  return scaled(bytes, kScales);
}

std::string count_text(double count) {
  constexpr Scale kScales[] = {{1e18, " E"}, {1e15, " P"}, {1e12, " T"}, {1e9, " G"},
                               {1e6, " M"},  {1e3, " k"},  {1, ""}};
  return scaled(count, kScales);
}

std::string money_text(double amount) {
  const bool is_whole = amount >= 1000 && amount < 1e15;
  return is_whole ? integer_text(static_cast<uint64_t>(std::llround(amount))) : count_text(amount);
}

std::string percent_text(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f} %", 100 * fraction)
                                 : fmt::format("{}", fraction);
}

std::string integer_text(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, " ");
  return text;
}

std::string counted(uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", integer_text(number), noun, number == 1 ? "" : "s");
}

std::string range_text(uint64_t first, uint64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0U) == 0x80U ? 0U : 1U;
  return columns;
}

std::string clipped(std::string_view text, size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (starts && ++seen == columns) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace corro::plan
