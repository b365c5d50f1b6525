// FieldReader: the fields of a manifest, one after the other. What is wrong becomes a problem with
// the field's path, and a harmless value comes back, so that one reading finds all problems.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// "spec.worker.min" and "must be an integer from 1 to 10000".
struct Problem {
  std::string path;
  std::string what;

  friend bool operator==(const Problem&, const Problem&) = default;
};

using Problems = std::vector<Problem>;

/// A manifest with more problems than this is not read further.
inline constexpr size_t kMostProblems = 32;

/// Borrows what it is given. A field that is missing or null is not there; an unknown one is the
/// API server's to refuse.
class FieldReader {
 public:
  /// Fails for a value that is no object.
  FieldReader(const Json& object, std::string path, Problems& problems);

  struct Range {
    int64_t least;
    int64_t most;
  };

  [[nodiscard]] const Json* find(std::string_view field) const;
  /// find(), or null and a problem if there is none.
  [[nodiscard]] const Json* require(std::string_view field);
  [[nodiscard]] bool has(std::string_view field) const { return find(field) != nullptr; }
  [[nodiscard]] std::optional<int64_t> integer(std::string_view field, Range range);
  [[nodiscard]] bool boolean(std::string_view field, bool fallback);
  /// Fails for text longer than `most` bytes.
  [[nodiscard]] std::string text(std::string_view field, std::string_view fallback = "",
                                 size_t most = 4096);
  /// Returns the place in `names`; fails for another text.
  [[nodiscard]] size_t choice(std::string_view field, std::initializer_list<std::string_view> names,
                              size_t fallback);
  /// Reads an object; an empty one if there is none.
  [[nodiscard]] FieldReader object(std::string_view field);

  [[nodiscard]] std::string path_of(std::string_view field) const;
  void fail(std::string_view field, std::string what);

 private:
  const Json* object_;
  std::string path_;
  Problems& problems_;
};

}  // namespace corro::kube
