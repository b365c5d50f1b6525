// A file that a job writes from its beginning to its end.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "io/fd.h"

namespace corro::launch {

/// Loop-confined. Writes block as long as the disk does.
class AppendedFile {
 public:
  /// Opens the file, empty. The failure says what to do: choose another `option`.
  static Result<AppendedFile> create(std::string path, std::string_view option);
  /// The failure names the file: a full disk, say.
  [[nodiscard]] Status append(std::string_view bytes) const;

 private:
  std::string path_;
  io::Fd fd_;
};

/// Makes a directory and its parents. The failure says what to do: choose another `option`.
[[nodiscard]] Status make_directories(const std::string& path, std::string_view option);

}  // namespace corro::launch
