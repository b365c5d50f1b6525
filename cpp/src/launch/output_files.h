// What each rank prints, in a folder of its own, its two streams apart: --output-dir.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/output.h"
#include "launch/appended_file.h"
#include "screen/prefixed_lines.h"
#include "screen/show.h"

namespace corro::launch {

/// Loop-confined. The layout is Horovod's: DIR/rank.07/stdout and DIR/rank.07/stderr, ranks padded
/// with zeros to equal lengths.
class OutputFiles {
 public:
  /// Returns what stands in front of a line.
  using Prefix = std::function<std::string(int rank, io::Output stream)>;

  /// Makes the folders and opens all files. Null `prefix`: bytes are written as they come.
  static Result<OutputFiles> create(const std::string& directory, int ranks, Prefix prefix,
                                    Earlier earlier = Earlier::kDropped);

  /// Appends to a rank's file. The first failure (a full disk) is returned; after it nothing more
  /// is written.
  [[nodiscard]] Status append(int rank, io::Output stream, std::string_view bytes);
  /// The rank's stream has ended: a last line without an end is written, too.
  [[nodiscard]] Status finish(int rank, io::Output stream);

 private:
  struct Stream {
    AppendedFile file;
    screen::PrefixedLines lines = {};
  };
  [[nodiscard]] Stream& stream_of(int rank, io::Output stream) {
    return streams_[static_cast<size_t>(rank)][stream == io::Output::kOut ? 0 : 1];
  }
  Status write(const Stream& stream, std::string_view bytes);

  Prefix prefix_;
  std::vector<std::array<Stream, 2>> streams_;
  bool failed_ = false;
};

/// Returns what stands in front of a line there: what does on the screen, where that is as Horovod
/// prints it, else the time alone; null where nothing does.
[[nodiscard]] OutputFiles::Prefix file_prefix(const screen::Show& show,
                                              std::function<std::string()> time);

}  // namespace corro::launch
