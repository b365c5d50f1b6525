#include "kube/client/watch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kube/client/api_error.h"

namespace corro::kube {

Status WatchLines::feed(std::string_view piece, const Visit& visit) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    const bool was_long = line_bytes_ > most_;
    line_bytes_ += part.size();
    if (line_bytes_ <= most_) {
      line_ += part;
    } else {
      if (!was_long) long_line_.feed(line_);
      line_.clear();
      long_line_.feed(part);
    }
    if (end == std::string_view::npos) return {};
    piece.remove_prefix(end + 1);
    CORRO_TRY(line_bytes_ > most_ ? end_long_line(visit) : end_line(visit));
  }
  return {};
}

Status WatchLines::end_long_line(const Visit& visit) {
  WatchEvent event;
  event.kind = WatchEvent::Kind::kRefused;
  event.name = long_line_.name();
  long_line_ = {};
  line_bytes_ = 0;
  return visit(std::move(event));
}

Status WatchLines::end_line(const Visit& visit) {
  using Kind = WatchEvent::Kind;
  const std::string text = std::exchange(line_, {});
  line_bytes_ = 0;
  if (text.find_first_not_of(" \t\r") == std::string::npos) return {};
  const std::string context = name_ + ": watch";
  CORRO_ASSIGN(Json json, parse_object(text, context, most_));
  const std::string type = text_at(json, {"type"});
  const auto object = json.find("object");
  if (object == json.end() || !object->is_object()) {
    return {Code::kDataLoss, context + ": an event without an object"};
  }
  if (type == "ERROR") return error_of(*object, context);
  constexpr std::array<std::pair<std::string_view, Kind>, 4> kTypes = {
      {{"ADDED", Kind::kAdded},
       {"MODIFIED", Kind::kModified},
       {"DELETED", Kind::kDeleted},
       {"BOOKMARK", Kind::kBookmark}}};
  const auto known = std::ranges::find(kTypes, type, &std::pair<std::string_view, Kind>::first);
  if (known == kTypes.end()) {
    return {Code::kDataLoss, context + ": an event of a type that is not known"};
  }
  WatchEvent event;
  event.kind = known->second;
  event.resource_version = text_at(*object, {"metadata", "resourceVersion"});
  if (event.resource_version.empty()) {
    return {Code::kDataLoss, context + ": an object without a resource version"};
  }
  event.object = std::move(*object);
  return visit(std::move(event));
}

Status WatchLines::finish() const {
  if (line_bytes_ == 0) return {};
  return {Code::kUnavailable,
          fmt::format("{}: watch: cut in a line, after {} bytes", name_, line_bytes_)};
}

}  // namespace corro::kube
