#include "plan/json.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/yaml.h"

namespace corro::plan {
namespace {

/// Foreign text on one line of a message: no control characters, nothing but ASCII, not too long.
std::string one_line(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string line(text.substr(0, kMost));
  std::ranges::replace_if(line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? line + "..." : line;
}

/// Walks a document before it becomes a value: nlohmann keeps the last of two fields of one name,
/// has no limit to nesting, and throws. Stops at the first error.
class Scan final : public nlohmann::json_sax<Json> {
 public:
  [[nodiscard]] const std::string& error() const { return error_; }

  bool null() override { return next(); }
  bool boolean(bool /*value*/) override { return next(); }
  bool number_integer(number_integer_t /*value*/) override { return next(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return next(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return next(); }
  bool string(string_t& /*value*/) override { return next(); }
  bool binary(binary_t& /*value*/) override { return next(); }
  bool start_object(size_t /*size*/) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(size_t /*size*/) override { return open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.field = name;
    if (level.fields.insert(name).second) return true;
    error_ = place() + ": comes twice";
    return false;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.find("] ") + 2, what.size()));  // "[json.exception.NAME.ID] ".
    error_ = "is not JSON: " + one_line(what);
    return false;
  }

 private:
  struct Level {
    bool is_list;
    size_t items = 0;
    std::string field = {};
    std::set<std::string> fields = {};
  };

  bool next() {
    if (!levels_.empty()) ++levels_.back().items;
    return true;
  }
  bool open(bool is_list) {
    if (levels_.size() == kMostJsonDepth) {
      error_ = fmt::format("is nested deeper than {} levels", kMostJsonDepth);
      return false;
    }
    levels_.push_back({.is_list = is_list});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return next();
  }
  [[nodiscard]] std::string place() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.is_list) {
        text += fmt::format("[{}]", level.items);
      } else {
        text += (text.empty() ? "" : ".") + one_line(level.field);
      }
    }
    return text;
  }

  std::vector<Level> levels_;
  std::string error_;
};

/// The length of the UTF-8 character that the text begins with, or 0 for anything else. Tables of
/// RFC 3629, section 4.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second >= 0xA0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first < 0xF0 || first > 0xF4) return 0;
  const bool outside = (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return follows(1) && follows(2) && follows(3) && !outside ? 4 : 0;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view name) {
  const auto refuse = [name](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", name, what));
  };
  if (text.size() > kMostJsonBytes) {
    return refuse(fmt::format("has {} bytes; at most {} are read", text.size(), kMostJsonBytes));
  }
  Scan scan;
  if (!Json::sax_parse(text, &scan)) return refuse(scan.error());
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool is_name(std::string_view text, size_t most) {
  if (text.empty() || text.size() > most) return false;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const size_t length = character_length(text);
    if (length == 0 || first < ' ' || first == 0x7F || first == '"') return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Place::to_string() const {
  std::string text = around == nullptr ? "" : around->to_string();
  if (item) return text + fmt::format("[{}]", *item);
  return text + (text.empty() || field.empty() ? "" : ".") + one_line(field);
}

void Reading::fail(const Place& place, std::string_view what) {
  if (!status_.ok()) return;
  const std::string where = place.to_string();
  const size_t line = text_.empty() ? 0 : line_of(text_, place);
  status_ = {Code::kInvalidArgument,
             fmt::format("{}{}: {}{}{}", name_, line == 0 ? "" : fmt::format(":{}", line), where,
                         where.empty() ? "" : ": ", what)};
}

void check_version(const Json& document, std::string_view field, uint64_t version,
                   Reading& reading) {
  const Place place{nullptr, field, {}};
  if (!document.is_object()) return reading.fail({}, "must be an object");
  const auto found = document.find(field);
  if (found == document.end()) return reading.fail(place, "is missing");
  if (!found->is_number_unsigned() || found->get<uint64_t>() == 0) {
    reading.fail(place, fmt::format("must be {}", version));
  } else if (found->get<uint64_t>() != version) {
    reading.fail(place, fmt::format("is version {}; this corro reads version {}",
                                    found->get<uint64_t>(), version));
  }
}

double read_quantity(const Json& value, const Place& place, Reading& reading, Unit unit,
                     RealRange range) {
  std::optional<double> amount;
  if (value.is_number()) amount = value.get<double>();
  if (value.is_string()) amount = parse_quantity(value.get_ref<const std::string&>(), unit);
  if (amount && range.holds(*amount)) return *amount;
  reading.fail(place, fmt::format("must be {} from {} to {}: a number, or text such as \"{}\"",
                                  name_of(unit), range.least, range.most, example_of(unit)));
  return range.least;
}

ObjectReader::ObjectReader(const Json& json, const Place& place, Reading& reading,
                           std::initializer_list<std::string_view> known)
    : object_(json.is_object() ? &json : nullptr), place_(place), reading_(reading) {
  if (object_ == nullptr) {
    reading_.fail(place_, "must be an object");
    return;
  }
  for (const auto& [field, value] : object_->items()) {
    if (std::ranges::find(known, field) != known.end()) continue;
    reading_.fail({&place_, field, {}},
                  fmt::format("is no field here; there are {}", fmt::join(known, ", ")));
  }
}

const Json* ObjectReader::find(std::string_view field) const {
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(field);
  return found == object_->end() ? nullptr : &*found;
}

const Json* ObjectReader::require(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr) reading_.fail({&place_, field, {}}, "is missing");
  return value;
}

int64_t ObjectReader::integer(std::string_view field, Range range,
                              std::optional<int64_t> fallback) {
  const Json* value = fallback ? find(field) : require(field);
  if (value == nullptr) return fallback.value_or(range.least);
  if (value->is_number_integer()) {
    const bool fits =
        !value->is_number_unsigned() || std::in_range<int64_t>(value->get<uint64_t>());
    const auto number = value->get<int64_t>();
    if (fits && number >= range.least && number <= range.most) return number;
  }
  reading_.fail({&place_, field, {}},
                fmt::format("must be an integer from {} to {}", range.least, range.most));
  return range.least;
}

double ObjectReader::real(std::string_view field, RealRange range, std::optional<double> fallback) {
  const Json* value = fallback ? find(field) : require(field);
  if (value == nullptr) return fallback.value_or(range.least);
  if (value->is_number() && range.holds(value->get<double>())) return value->get<double>();
  reading_.fail({&place_, field, {}},
                fmt::format("must be a number from {} to {}", range.least, range.most));
  return range.least;
}

double ObjectReader::quantity(std::string_view field, Unit unit, RealRange range,
                              std::optional<double> fallback) {
  const Json* value = fallback ? find(field) : require(field);
  if (value == nullptr) return fallback.value_or(range.least);
  return read_quantity(*value, {&place_, field, {}}, reading_, unit, range);
}

bool ObjectReader::boolean(std::string_view field, std::optional<bool> fallback) {
  const Json* value = fallback ? find(field) : require(field);
  if (value == nullptr) return fallback.value_or(false);
  if (value->is_boolean()) return value->get<bool>();
  reading_.fail({&place_, field, {}}, "must be true or false");
  return false;
}

std::string ObjectReader::text(std::string_view field, const std::optional<std::string>& fallback) {
  const Json* value = fallback ? find(field) : require(field);
  if (value == nullptr) return fallback.value_or("");
  if (value->is_string()) return value->get<std::string>();
  reading_.fail({&place_, field, {}}, "must be text");
  return {};
}

size_t ObjectReader::choose(const Json& value, const Place& at,
                            const std::vector<std::string_view>& names) {
  if (value.is_string()) {
    const auto found = std::ranges::find(names, value.get_ref<const std::string&>());
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
  }
  reading_.fail(at, fmt::format("must be one of {}", fmt::join(names, ", ")));
  return 0;
}

}  // namespace corro::plan
