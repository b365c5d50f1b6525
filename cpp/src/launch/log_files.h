// Every rank's whole output, byte for byte, in a file of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/appended_file.h"

namespace corro::launch {

/// Loop-confined.
class LogFiles {
 public:
  /// Makes the directory and its parents, and opens rank-N.log for each rank. Of an earlier job
  /// failure.json, error files and logs of further ranks are removed. The failure says what to do:
  /// --log-dir.
  static Result<LogFiles> create(const std::string& directory, int ranks, Earlier earlier);

  /// Appends to a rank's file. The first failure (a full disk) is returned, later ones are not.
  [[nodiscard]] Status append(int rank, std::string_view bytes);
  /// Writes a small file into the directory.
  [[nodiscard]] Status write_file(const std::string& name, std::string_view text) const;
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::vector<AppendedFile> files_;
  bool failed_ = false;
};

}  // namespace corro::launch
