// JSON of API objects: read with limits, looked into without surprises.
//
//   CORRO_ASSIGN(const Json pod, parse_object(text, "pods default/a", most_bytes));
//   const std::string phase = text_at(pod, {"status", "phase"});     // "" if it is not there
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::kube {

using Json = nlohmann::json;

/// Deeper than the schema of any CustomResourceDefinition; writing JSON recurses.
inline constexpr size_t kMostObjectDepth = 256;

/// Parses one object. Of two fields of one name the last counts, as for the API server.
/// RESOURCE_EXHAUSTED "name: ..." for more than `most` bytes; DATA_LOSS for text that is no JSON
/// object or is nested deeper than kMostObjectDepth.
[[nodiscard]] Result<Json> parse_object(std::string_view text, std::string_view name, size_t most);

/// Writes JSON on one line; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string text_of(const Json& json);

/// The value at a path of fields, or null if one of them is missing.
[[nodiscard]] const Json* value_at(const Json& json, std::initializer_list<std::string_view> path);
/// The text at a path of fields; "" if one is missing or the value is no text.
[[nodiscard]] std::string text_at(const Json& json, std::initializer_list<std::string_view> path);

/// Encodes base64 (RFC 4648, section 4) with padding, on one line: Secrets hold their values so.
[[nodiscard]] std::string encode_base64(std::string_view bytes);

/// Walks JSON text byte by byte without keeping it, for texts too long to keep: it knows the fields
/// around each byte. Text that is no JSON gives no errors, only nonsense. Loop-confined.
class JsonWalk {
 public:
  /// A value that has begun or ended with the last byte.
  enum class Step : uint8_t { kNone, kOpened, kClosed, kText };

  [[nodiscard]] Step next(char c);
  /// Objects and lists around the place.
  [[nodiscard]] size_t depth() const { return depth_; }
  /// True if the place's fields are these, from the outside; "*" is an item of a list.
  [[nodiscard]] bool is_at(std::initializer_list<std::string_view> path) const;
  /// The text that ended with kText, without escapes undone, cut after 300 bytes.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  static constexpr size_t kMostKept = 8;  ///< Levels whose fields are kept; nobody asks deeper.
  [[nodiscard]] bool is_list() const {
    return depth_ > 0 && depth_ <= kMostKept && lists_[depth_ - 1];
  }
  [[nodiscard]] Step end_text();

  size_t depth_ = 0;
  bool lists_[kMostKept] = {};
  std::string fields_[kMostKept];
  bool is_field_ = false;  ///< The next text is a field's name.
  bool in_text_ = false;
  bool is_escaped_ = false;
  std::string text_;
};

/// Finds an object's name in the text of a watch event or of a list of one, however long it is.
class NameFinder {
 public:
  void feed(std::string_view piece);
  /// "default/pod-1", "node-1", or "" if there was no name.
  [[nodiscard]] std::string name() const;

 private:
  JsonWalk walk_;
  std::string space_;
  std::string name_;
};

/// A list's items as pieces of its text, not parsed, and its own resource version and continuation.
struct ListText {
  std::vector<std::string_view> items = {};
  std::string resource_version = {};
  std::string next = {};  ///< metadata.continue; "" after the last page.
};
/// Cuts the text of a list ("PodList" and the like) into its items. DATA_LOSS "name: ..." for text
/// that is no list.
[[nodiscard]] Result<ListText> cut_list(std::string_view text, std::string_view name);

}  // namespace corro::kube
