#include "kube/client/json.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

namespace corro::kube {
namespace {

/// True if no place of the text has more than kMostObjectDepth brackets around it.
bool is_shallow(std::string_view text) {
  JsonWalk walk;
  return std::ranges::all_of(text, [&walk](char c) {
    (void)walk.next(c);
    return walk.depth() <= kMostObjectDepth;
  });
}

}  // namespace

Result<Json> parse_object(std::string_view text, std::string_view name, size_t most) {
  if (text.size() > most) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{}: has {} bytes; at most {} are read", name, text.size(), most));
  }
  const auto refuse = [name](std::string_view what) {
    return Status(Code::kDataLoss, fmt::format("{}: {}", name, what));
  };
  if (!is_shallow(text)) return refuse("is nested too deeply");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("is no JSON");
  if (!json.is_object()) return refuse("is no JSON object");
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* value_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view field : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(field);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string text_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* value = value_at(json, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::string encode_base64(std::string_view bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), kVariant);
  text.pop_back();  // The zero at the end.
  return text;
}

JsonWalk::Step JsonWalk::end_text() {
  in_text_ = false;
  if (!is_field_) return Step::kText;
  is_field_ = false;
  if (depth_ <= kMostKept) fields_[depth_ - 1] = text_;
  return Step::kNone;
}

JsonWalk::Step JsonWalk::next(char c) {
  constexpr size_t kMostText = 300;
  if (in_text_) {
    if (!is_escaped_ && c == '"') return end_text();
    if (text_.size() < kMostText) text_ += c;
    is_escaped_ = !is_escaped_ && c == '\\';
    return Step::kNone;
  }
  if (c == '"') {
    in_text_ = true;
    text_.clear();
  } else if (c == '{' || c == '[') {
    if (depth_ < kMostKept) {
      lists_[depth_] = c == '[';
      fields_[depth_] = c == '[' ? "*" : "";
    }
    ++depth_;
    is_field_ = c == '{';
    return Step::kOpened;
  } else if ((c == '}' || c == ']') && depth_ > 0) {
    --depth_;
    is_field_ = false;
    return Step::kClosed;
  } else if (c == ',') {
    is_field_ = depth_ > 0 && depth_ <= kMostKept && !is_list();
  }
  return Step::kNone;
}

bool JsonWalk::is_at(std::initializer_list<std::string_view> path) const {
  return depth_ == path.size() && depth_ <= kMostKept &&
         std::equal(path.begin(), path.end(), std::begin(fields_));
}

void NameFinder::feed(std::string_view piece) {
  for (const char c : piece) {
    if (walk_.next(c) != JsonWalk::Step::kText) continue;
    const auto is = [&](std::string_view field) {
      return walk_.is_at({"object", "metadata", field}) || walk_.is_at({"metadata", field}) ||
             walk_.is_at({"items", "*", "metadata", field});
    };
    if (name_.empty() && is("name")) name_ = walk_.text();
    if (space_.empty() && is("namespace")) space_ = walk_.text();
  }
}

std::string NameFinder::name() const {
  std::string name = space_.empty() || name_.empty() ? name_ : space_ + "/" + name_;
  std::ranges::replace_if(name, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return name;
}

Result<ListText> cut_list(std::string_view text, std::string_view name) {
  ListText list;
  JsonWalk walk;
  size_t begin = 0;
  bool has_items = false;
  bool has_version = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonWalk::Step step = walk.next(text[i]);
    if (step == JsonWalk::Step::kText && walk.is_at({"metadata", "resourceVersion"})) {
      list.resource_version = walk.text();
      has_version = true;
    } else if (step == JsonWalk::Step::kText && walk.is_at({"metadata", "continue"})) {
      // A token may be longer than what a walk keeps: cut from the text.
      const size_t open = text.rfind('"', i - 1);
      list.next = std::string(text.substr(open + 1, i - open - 1));
    } else if (step == JsonWalk::Step::kOpened && text[i] == '[' && walk.is_at({"items", "*"})) {
      has_items = true;
    } else if (step == JsonWalk::Step::kOpened && walk.depth() == 3 && text[i] == '{') {
      begin = i;
    } else if (step == JsonWalk::Step::kClosed && walk.is_at({"items", "*"})) {
      list.items.push_back(text.substr(begin, i + 1 - begin));
    }
  }
  // An empty list of some servers is null.
  const bool is_null = text.find("\"items\":null") != std::string_view::npos;
  if (walk.depth() != 0 || !has_version || !(has_items || is_null)) {
    return Status(Code::kDataLoss, fmt::format("{}: is no list of API objects", name));
  }
  return list;
}

}  // namespace corro::kube
