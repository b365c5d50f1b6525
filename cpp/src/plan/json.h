// JSON from outside: a document is read with limits and duplicate names are refused; objects are
// read field by field, and the first error names the place.
//
//   CORRO_ASSIGN(const Json document, parse_json(text, "plan.json"));
//   Reading reading("plan.json");
//   ObjectReader top(document, {}, reading, {"name", "slots"});
//   const std::string name = top.text("name");
//   const auto slots = static_cast<uint32_t>(top.integer("slots", {1, 65536}, 1));
//   CORRO_TRY(reading.status());     // INVALID_ARGUMENT "plan.json: slots: must be an integer ..."
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/quantity.h"

namespace corro::plan {

using Json = nlohmann::json;

inline constexpr size_t kMostJsonBytes = size_t{64} << 20U;
inline constexpr size_t kMostJsonDepth = 32;
inline constexpr size_t kMostNameBytes = 200;

/// Parses a document. INVALID_ARGUMENT "name: ..." for more than kMostJsonBytes, text that is no
/// JSON, nesting beyond kMostJsonDepth, and a field that comes twice in one object.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view name);

/// What a name has to be, in a message.
inline constexpr std::string_view kNameRule =
    "must be 1 to 200 bytes of UTF-8 without control characters and quotation marks";

/// True for 1 to `most` bytes of UTF-8 without control characters and quotation marks: what can
/// stand in a message.
[[nodiscard]] bool is_name(std::string_view text, size_t most = kMostNameBytes);

/// Where a value stands: services[3].lane is field "lane" of item 3 of field "services". Links to
/// the places around it, which outlive it; no text is made before there is an error.
struct Place {
  const Place* around = nullptr;
  std::string_view field = {};
  std::optional<size_t> item = {};

  [[nodiscard]] std::string to_string() const;
};

/// The first error of one reading. Later ones are dropped, so readers need not stop at once.
class Reading {
 public:
  /// With the text that is read, JSON or YAML, messages have lines. Borrows it.
  explicit Reading(std::string_view name, std::string_view text = {}) : name_(name), text_(text) {}
  void fail(const Place& place, std::string_view what);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  std::string name_;
  std::string_view text_;
  Status status_;
};

/// Fails unless `field` of a document's object is `version`. To be called first: of a newer version
/// nothing else can be said.
void check_version(const Json& document, std::string_view field, uint64_t version,
                   Reading& reading);

/// Reads a number of base units, or text as of parse_quantity(). Fails for anything else, for
/// numbers outside of the range and for such as are none; then `range.least` comes back.
[[nodiscard]] double read_quantity(const Json& value, const Place& place, Reading& reading,
                                   Unit unit, RealRange range);

/// Reads the fields of one object. What is wrong goes to `reading`, and a harmless value comes
/// back. Borrows everything it is given.
class ObjectReader {
 public:
  /// Fails for a value that is no object, and for a field that is not known.
  ObjectReader(const Json& json, const Place& place, Reading& reading,
               std::initializer_list<std::string_view> known);

  struct Range {
    int64_t least;
    int64_t most;
  };
  /// Without `fallback` the field has to be there.
  [[nodiscard]] int64_t integer(std::string_view field, Range range,
                                std::optional<int64_t> fallback = {});
  /// Not-a-number and infinity are outside of every range.
  [[nodiscard]] double real(std::string_view field, RealRange range,
                            std::optional<double> fallback = {});
  [[nodiscard]] double quantity(std::string_view field, Unit unit, RealRange range,
                                std::optional<double> fallback = {});
  [[nodiscard]] bool boolean(std::string_view field, std::optional<bool> fallback = {});
  [[nodiscard]] std::string text(std::string_view field,
                                 const std::optional<std::string>& fallback = {});
  /// One of the first `count` values of an enum, spelled as its name_of().
  template <typename Enum>
  [[nodiscard]] Enum choice(std::string_view field, int count, std::optional<Enum> fallback = {}) {
    std::vector<std::string_view> names;
    for (int i = 0; i < count; ++i) names.push_back(name_of(static_cast<Enum>(i)));
    const Json* value = fallback ? find(field) : require(field);
    return value == nullptr ? fallback.value_or(Enum{})
                            : static_cast<Enum>(choose(*value, {&place_, field, {}}, names));
  }
  /// Returns null if the field is missing.
  [[nodiscard]] const Json* find(std::string_view field) const;
  /// Calls visit(item, place) for each item of a list until one fails; a missing list is empty.
  template <typename Visit>
  void list(std::string_view field, Visit&& visit) {
    const Json* items = find(field);
    const Place at{&place_, field, {}};
    if (items == nullptr) return;
    if (!items->is_array()) return reading_.fail(at, "must be a list");
    for (size_t i = 0; i < items->size() && reading_.ok(); ++i)
      visit((*items)[i], Place{&at, {}, i});
  }
  /// Calls visit(name, value, place) for each field of an object, by name, until one fails; a
  /// missing object is empty.
  template <typename Visit>
  void fields(std::string_view field, Visit&& visit) {
    const Json* object = find(field);
    const Place at{&place_, field, {}};
    if (object == nullptr) return;
    if (!object->is_object()) return reading_.fail(at, "must be an object");
    for (const auto& [name, value] : object->items()) {
      if (reading_.ok()) visit(name, value, Place{&at, name, {}});
    }
  }

 private:
  const Json* require(std::string_view field);
  size_t choose(const Json& value, const Place& at, const std::vector<std::string_view>& names);

  const Json* object_;
  Place place_;
  Reading& reading_;
};

}  // namespace corro::plan
