// TimelineFile: a JSON array that grows and that whoever opens it can parse at any moment, also
// after this process was killed.
//
//   CORRO_ASSIGN(auto file, TimelineFile::create("/tmp/timeline.json"));
//   file.append(",\n{\"name\":\"x\"}");
//   CORRO_TRY(file.publish());
//
// Each version is a file of its own that takes the place of the one before (rename): no reader sees
// half of a line, or a bracket too few, however slowly it reads. The kernel copies what has not
// changed; so that this stays cheap while the file grows, due() leaves 20 times as long
// between two versions as the last one took.
// FILE.tmp is the one that is being written.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace corro::runtime {

/// Loop-confined. Blocks on the file system.
class TimelineFile {
 public:
  /// Makes the file, with an array without events; the kernel's reason if that cannot be done.
  [[nodiscard]] static Result<TimelineFile> create(std::string path);

  /// Objects of the next version, each with ",\n" before it.
  void append(std::string_view objects) { waiting_ += objects; }
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }
  /// When the next version is due, if anything waits.
  [[nodiscard]] Time due() const;
  /// Writes the next version. After a failure the last one is there still.
  [[nodiscard]] Status publish();

 private:
  explicit TimelineFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Status write_version(const std::string& path) const;

  std::string path_;
  std::string waiting_;
  size_t size_ = 0;  ///< Of the last version, without its end.
  Time next_{};
};

}  // namespace corro::runtime
