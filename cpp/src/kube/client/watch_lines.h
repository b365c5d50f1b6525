// The stream of a watch, cut into events. Pure: bytes in, events out.
//
//   WatchLines lines(most_object_bytes, "pods");
//   CORRO_TRY(lines.feed(piece, [&](WatchEvent event) { ...; return Status(); }));
//   ... the stream has ended:
//   CORRO_TRY(lines.finish());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kube/client/json.h"

namespace corro::kube {

struct WatchEvent {
  enum class Kind : uint8_t {
    kAdded,
    kModified,
    kDeleted,
    kBookmark,  ///< Nothing changed; the stream has come to resource_version.
    kRefused,   ///< Over the size cap: `name` says of which object, the rest was passed over.
    kResynced,  ///< Of watch() alone: `objects` are all there are; what is not among them is gone.
    kTrouble,   ///< Of watch() alone: `trouble` interrupted the watch, which goes on by itself.
  };
  Kind kind = Kind::kBookmark;
  Json object = {};
  std::vector<Json> objects = {};
  std::string resource_version = {};  ///< "" for kRefused and kTrouble.
  std::string name = {};              ///< Of kRefused: "default/pod-1", "" if it had none.
  Status trouble = {};
};

/// Loop-confined. Keeps at most one line of `most_line_bytes`.
class WatchLines {
 public:
  /// `name` begins each message.
  WatchLines(size_t most_line_bytes, std::string name)
      : most_(most_line_bytes), name_(std::move(name)) {}

  using Visit = std::function<Status(WatchEvent event)>;
  /// Takes bytes and visits every event that ends in them, in order. DATA_LOSS for a line that is
  /// no event; an event ERROR is the failure that code_of() gives, OUT_OF_RANGE for 410; what
  /// `visit` returns if it fails. After a failure nothing more may be fed.
  [[nodiscard]] Status feed(std::string_view piece, const Visit& visit);
  /// To be called when the stream has ended. UNAVAILABLE if it was cut in the middle of a line.
  [[nodiscard]] Status finish() const;

 private:
  [[nodiscard]] Status end_line(const Visit& visit);
  [[nodiscard]] Status end_long_line(const Visit& visit);

  const size_t most_;
  const std::string name_;
  std::string line_;       ///< What there is of the line, unless it is too long.
  size_t line_bytes_ = 0;  ///< Of the whole line.
  NameFinder long_line_;   ///< Has the line, if it is too long.
};

}  // namespace corro::kube
