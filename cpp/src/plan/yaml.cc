#include "plan/yaml.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml.h>

namespace corro::plan {
namespace {

/// One container that the walk is in.
struct Level {
  bool is_list = false;
  bool in_field = false;  ///< Of an object: its field's name was read, the value was not.
  size_t items = 0;
  std::string field = {};
};

/// Reads a document step by step with libyaml and knows where each step stands. libyaml gives
/// events; this class refuses those that no reader wants (aliases, tags, keys that are containers)
/// and counts, so that no text makes it take more memory than its limits say.
class YamlWalk {
 public:
  enum class Step : uint8_t { kObject, kList, kClose, kField, kScalar, kEnd, kError };

  explicit YamlWalk(std::string_view text) : text_(text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~YamlWalk() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlWalk(const YamlWalk&) = delete;
  YamlWalk& operator=(const YamlWalk&) = delete;

  /// After kEnd and kError there is no next one.
  Step next();

  [[nodiscard]] const std::vector<Level>& levels() const { return levels_; }
  /// Of the last step, from 1.
  [[nodiscard]] size_t line() const { return line_; }
  [[nodiscard]] std::string_view scalar() const {
    const auto& scalar = event_.data.scalar;
    return {reinterpret_cast<const char*>(scalar.value), scalar.length};
  }
  /// True for text that may mean a number, true, false or null: no quotation marks around it.
  [[nodiscard]] bool is_plain() const {
    return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  }
  /// What is wrong, after kError.
  [[nodiscard]] const std::string& error() const { return error_; }
  Step refuse(std::string_view what);

 private:
  bool read_event();
  Step refuse_text();
  Step open(bool is_list);
  Step on_scalar();
  void end_value();
  [[nodiscard]] const char* marks() const;

  std::string_view text_;
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
  std::vector<Level> levels_;
  size_t values_ = 0;
  size_t documents_ = 0;
  size_t line_ = 0;
  std::string error_;
};

bool YamlWalk::read_event() {
  yaml_event_delete(&event_);
  event_ = {};
  if (yaml_parser_parse(&parser_, &event_) == 0) return false;
  line_ = event_.start_mark.line + 1;
  return true;
}

YamlWalk::Step YamlWalk::next() {
  while (read_event()) {
    if (const char* what = marks()) return refuse(what);
    switch (event_.type) {
      case YAML_DOCUMENT_START_EVENT:
        if (++documents_ > 1) return refuse("is a second document; one is read");
        break;
      case YAML_MAPPING_START_EVENT:
        return open(false);
      case YAML_SEQUENCE_START_EVENT:
        return open(true);
      case YAML_MAPPING_END_EVENT:
      case YAML_SEQUENCE_END_EVENT:
        levels_.pop_back();
        end_value();
        return Step::kClose;
      case YAML_SCALAR_EVENT:
        return on_scalar();
      case YAML_STREAM_END_EVENT:
        return Step::kEnd;
      default:
        break;
    }
  }
  return refuse_text();
}

/// Why the event is one that no reader wants, or null.
const char* YamlWalk::marks() const {
  constexpr const char* kAnchor = "anchors (&name) are not read: write the value where it is used";
  constexpr const char* kTag = "tags (!name) are not read";
  const auto check = [&](const yaml_char_t* anchor, const yaml_char_t* tag) -> const char* {
    if (anchor != nullptr) return kAnchor;
    return tag != nullptr ? kTag : nullptr;
  };
  const auto& data = event_.data;
  switch (event_.type) {
    case YAML_ALIAS_EVENT:
      return "aliases (*name) are not read: write the value where it is used";
    case YAML_SCALAR_EVENT:
      return check(data.scalar.anchor, data.scalar.tag);
    case YAML_SEQUENCE_START_EVENT:
      return check(data.sequence_start.anchor, data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
      return check(data.mapping_start.anchor, data.mapping_start.tag);
    default:
      return nullptr;
  }
}

YamlWalk::Step YamlWalk::open(bool is_list) {
  if (!levels_.empty() && !levels_.back().is_list && !levels_.back().in_field) {
    return refuse("a field's name must be text");
  }
  if (levels_.size() == kMostJsonDepth) {
    return refuse(fmt::format("is nested deeper than {} levels", kMostJsonDepth));
  }
  if (++values_ > kMostYamlValues) {
    return refuse(fmt::format("holds more than {} values", kMostYamlValues));
  }
  levels_.push_back({.is_list = is_list});
  return is_list ? Step::kList : Step::kObject;
}

YamlWalk::Step YamlWalk::on_scalar() {
  if (!levels_.empty() && !levels_.back().is_list && !levels_.back().in_field) {
    levels_.back().field = scalar();
    levels_.back().in_field = true;
    return Step::kField;
  }
  if (++values_ > kMostYamlValues) {
    return refuse(fmt::format("holds more than {} values", kMostYamlValues));
  }
  end_value();
  return Step::kScalar;
}

void YamlWalk::end_value() {
  if (levels_.empty()) return;
  ++levels_.back().items;
  levels_.back().in_field = false;
}

YamlWalk::Step YamlWalk::refuse(std::string_view what) {
  error_ = what;
  return Step::kError;
}

YamlWalk::Step YamlWalk::refuse_text() {
  if (parser_.error == YAML_READER_ERROR) {  // Has no mark.
    const size_t offset = std::min(parser_.problem_offset, text_.size());
    line_ = 1 + static_cast<size_t>(std::ranges::count(text_.substr(0, offset), '\n'));
  } else {
    line_ = parser_.problem_mark.line + 1;
  }
  const std::string problem = parser_.problem == nullptr ? "no memory" : parser_.problem;
  if (parser_.context == nullptr) return refuse("is not YAML: " + problem);
  return refuse(fmt::format("is not YAML: {} {}", parser_.context, problem));
}

bool is_digits(std::string_view text, std::string_view digits = "0123456789") {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

/// Digits with at most one point among them.
bool is_decimal(std::string_view text) {
  const size_t point = text.find('.');
  if (point == std::string_view::npos) return is_digits(text);
  const std::string_view after = text.substr(point + 1);
  return (is_digits(after) && (point == 0 || is_digits(text.substr(0, point)))) ||
         (after.empty() && is_digits(text.substr(0, point)));
}

/// An integer that fits in 64 bits, else the nearest real number.
Json integer_of(std::string_view digits, int base, bool negative) {
  const std::string text(digits);
  errno = 0;
  const uint64_t value = std::strtoull(text.c_str(), nullptr, base);
  const bool fits = errno == 0;
  if (fits && !negative) return value;
  if (fits && value <= uint64_t{1} << 63U) return static_cast<int64_t>(~value + 1);
  const double real = base == 10 ? std::strtod(text.c_str(), nullptr) : HUGE_VAL;
  return negative ? -real : real;
}

/// Numbers of the core schema (YAML 1.2.2, section 10.3.2), or nothing.
std::optional<Json> number_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view whole = text;
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return std::nan("");
  if (text.starts_with("0o") && is_digits(text.substr(2), "01234567")) {
    return integer_of(text.substr(2), 8, false);
  }
  if (text.starts_with("0x") && is_digits(text.substr(2), "0123456789abcdefABCDEF")) {
    return integer_of(text.substr(2), 16, false);
  }
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text == ".inf" || text == ".Inf" || text == ".INF") return negative ? -HUGE_VAL : HUGE_VAL;
  if (is_digits(text)) return integer_of(text, 10, negative);
  const size_t power = text.find_first_of("eE");
  if (!is_decimal(text.substr(0, power))) return {};
  if (power != std::string_view::npos) {
    std::string_view exponent = text.substr(power + 1);
    if (exponent.starts_with('-') || exponent.starts_with('+')) exponent.remove_prefix(1);
    if (!is_digits(exponent)) return {};
  }
  return std::strtod(std::string(whole).c_str(), nullptr);
}

Json value_of(std::string_view text, bool is_plain) {
  if (!is_plain) return std::string(text);
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (std::optional<Json> number = number_of(text)) return *std::move(number);
  return std::string(text);
}

/// Where the walk stands, as Place::to_string() would say.
std::string place_of(const std::vector<Level>& levels) {
  std::vector<Place> places;
  places.reserve(levels.size());
  for (const Level& level : levels) {
    const Place* around = places.empty() ? nullptr : &places.back();
    if (level.is_list) {
      places.push_back({around, {}, level.items});
    } else if (level.in_field) {
      places.push_back({around, level.field, {}});
    }
  }
  return places.empty() ? "" : places.back().to_string();
}

/// Puts values together from the steps of a walk.
class Builder {
 public:
  /// Returns the document, or nothing after an error of the walk.
  std::optional<Json> build(YamlWalk& walk);

 private:
  void add(const YamlWalk& walk, Json value);

  std::vector<Json> open_;  ///< One for each level.
  Json root_;
};

std::optional<Json> Builder::build(YamlWalk& walk) {
  using Step = YamlWalk::Step;
  while (true) {
    switch (walk.next()) {
      case Step::kObject:
        open_.push_back(Json::object());
        break;
      case Step::kList:
        open_.push_back(Json::array());
        break;
      case Step::kField:
        if (!open_.back().contains(walk.levels().back().field)) break;
        walk.refuse("comes twice");
        return {};
      case Step::kScalar:
        add(walk, value_of(walk.scalar(), walk.is_plain()));
        break;
      case Step::kClose: {
        Json closed = std::move(open_.back());
        open_.pop_back();
        add(walk, std::move(closed));
        break;
      }
      case Step::kEnd:
        return std::move(root_);
      case Step::kError:
        return {};
    }
  }
}

void Builder::add(const YamlWalk& walk, Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
  } else if (open_.back().is_array()) {
    open_.back().push_back(std::move(value));
  } else {
    open_.back()[walk.levels().back().field] = std::move(value);
  }
}

/// True if the innermost place of the walk is `place`.
bool stands_at(const Level& level, const Place& place) {
  if (place.item) return level.is_list && level.items == *place.item;
  return !level.is_list && level.in_field && level.field == place.field;
}

}  // namespace

Result<Json> parse_yaml(std::string_view text, std::string_view name) {
  if (text.size() > kMostYamlBytes) {
    return Status(Code::kInvalidArgument, fmt::format("{}: has {} bytes; at most {} are read", name,
                                                      text.size(), kMostYamlBytes));
  }
  YamlWalk walk(text);
  if (std::optional<Json> document = Builder().build(walk)) return *std::move(document);
  const std::string where = place_of(walk.levels());
  return Status(Code::kInvalidArgument, fmt::format("{}:{}: {}{}{}", name, walk.line(), where,
                                                    where.empty() ? "" : ": ", walk.error()));
}

size_t line_of(std::string_view text, const Place& place) {
  if (text.size() > kMostYamlBytes) return 0;
  std::vector<const Place*> path;  // From the outside.
  for (const Place* at = &place; at != nullptr; at = at->around) {
    if (at->item || !at->field.empty()) path.insert(path.begin(), at);
  }
  using Step = YamlWalk::Step;
  YamlWalk walk(text);
  const std::vector<Level>& levels = walk.levels();
  size_t found = 0;  // The walk is inside of so many places of the path.
  size_t line = 0;
  while (found < path.size()) {
    const auto is_next = [&] {
      return levels.size() == found + 1 && stands_at(levels[found], *path[found]);
    };
    // A list counts the items that were read; the next step begins the one after them.
    const bool before_item = path[found]->item && is_next();
    const Step step = walk.next();
    if (step == Step::kEnd || step == Step::kError) break;
    const bool begins =
        path[found]->item ? before_item && step != Step::kClose : step == Step::kField && is_next();
    if (begins) {
      ++found;
      line = walk.line();
    }
    if (found > 0 && (levels.size() < found || !stands_at(levels[found - 1], *path[found - 1]))) {
      break;
    }
  }
  return line;
}

}  // namespace corro::plan
