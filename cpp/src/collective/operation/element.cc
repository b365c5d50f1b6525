#include "collective/operation/element.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace corro::collective {
namespace {

constexpr uint16_t kHashedName = 0x8000;
constexpr uint16_t kOtherOrder = 0x4000;
constexpr std::string_view kOtherOrderText = " in the other byte order";

struct Element {
  std::string_view name;
  uint64_t bytes;
};

/// Numbers are places in this table, from 1. They are on the wire: add at the end alone.
constexpr std::array kElements = {
    Element{"complex32", 4},
    Element{"complex64", 8},
    Element{"complex128", 16},
    Element{"complex256", 32},
    Element{"float128", 16},
    Element{"float8_e4m3fn", 1},
    Element{"float8_e5m2", 1},
    Element{"float8_e4m3fnuz", 1},
    Element{"float8_e5m2fnuz", 1},
    Element{"float8_e8m0fnu", 1},
    Element{"float4_e2m1fn_x2", 1},
    Element{"float8_e4m3", 1},
    Element{"float8_e3m4", 1},
    Element{"float8_e4m3b11fnuz", 1},
    Element{"qint8", 1},
    Element{"quint8", 1},
    Element{"qint32", 4},
    Element{"quint4x2", 1},
    Element{"quint2x4", 1},
    Element{"bfloat16", 2},
    Element{"int16", 2},
    Element{"int32", 4},
    Element{"int64", 8},
    Element{"uint16", 2},
    Element{"uint32", 4},
    Element{"uint64", 8},
    Element{"float16", 2},
    Element{"float32", 4},
    Element{"float64", 8},
    Element{"datetime64", 8},
    Element{"datetime64[Y]", 8},
    Element{"datetime64[M]", 8},
    Element{"datetime64[W]", 8},
    Element{"datetime64[D]", 8},
    Element{"datetime64[h]", 8},
    Element{"datetime64[m]", 8},
    Element{"datetime64[s]", 8},
    Element{"datetime64[ms]", 8},
    Element{"datetime64[us]", 8},
    Element{"datetime64[ns]", 8},
    Element{"datetime64[ps]", 8},
    Element{"datetime64[fs]", 8},
    Element{"datetime64[as]", 8},
    Element{"timedelta64", 8},
    Element{"timedelta64[Y]", 8},
    Element{"timedelta64[M]", 8},
    Element{"timedelta64[W]", 8},
    Element{"timedelta64[D]", 8},
    Element{"timedelta64[h]", 8},
    Element{"timedelta64[m]", 8},
    Element{"timedelta64[s]", 8},
    Element{"timedelta64[ms]", 8},
    Element{"timedelta64[us]", 8},
    Element{"timedelta64[ns]", 8},
    Element{"timedelta64[ps]", 8},
    Element{"timedelta64[fs]", 8},
    Element{"timedelta64[as]", 8},
};

/// FNV-1a.
uint16_t hash_of(std::string_view name) {
  uint32_t hash = 0x811C9DC5;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return static_cast<uint16_t>(kHashedName | ((hash ^ hash >> 16U) & 0x7FFFU));
}

/// Null for a hash, and for a number that no version of this table has had.
const Element* find(uint16_t number) {
  const auto place = static_cast<uint16_t>(number & ~kOtherOrder);
  return place == 0 || place > kElements.size() ? nullptr : &kElements[place - 1U];
}

}  // namespace

std::string long_name(DType dtype) {
  const std::string_view name = name_of(dtype);
  if (dtype == DType::kBool) return std::string(name);
  const size_t digits = name.find_first_of("0123456789");
  const std::string_view letters = name.substr(0, digits);
  const std::string_view word = letters == "u"    ? "uint"
                                : letters == "i"  ? "int"
                                : letters == "bf" ? "bfloat"
                                                  : "float";
  return fmt::format("{}{}", word, name.substr(digits));
}

uint16_t element_number(std::string_view name) {
  std::string_view own = name;
  const bool other_order = own.ends_with(kOtherOrderText);
  if (other_order) own.remove_suffix(kOtherOrderText.size());
  const auto* const found = std::ranges::find(kElements, own, &Element::name);
  if (found == kElements.end()) return hash_of(name);
  const auto number = static_cast<uint16_t>(found - kElements.begin() + 1);
  return other_order ? static_cast<uint16_t>(number | kOtherOrder) : number;
}

std::string element_name(uint16_t number) {
  const Element* const element = find(number);
  if (element == nullptr) return fmt::format("elements #{:04x}", number);
  return std::string(element->name) +
         std::string((number & kOtherOrder) != 0 ? kOtherOrderText : "");
}

uint64_t element_bytes(uint16_t number) {
  const Element* const element = find(number);
  return element == nullptr ? 1 : element->bytes;
}

}  // namespace corro::collective
