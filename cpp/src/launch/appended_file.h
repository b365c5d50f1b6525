// A file that a job writes from its beginning to its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "io/fd.h"

namespace corro::launch {

/// What a file has from before: of an earlier job, or of this one, with which another coordinator
/// goes on.
enum class Earlier : uint8_t { kDropped, kKept };

/// Loop-confined. Writes block as long as the disk does.
class AppendedFile {
 public:
  /// Opens the file. The failure says what to do: choose another `option`.
  static Result<AppendedFile> create(std::string path, std::string_view option,
                                     Earlier earlier = Earlier::kDropped);
  /// The failure names the file: a full disk, say.
  [[nodiscard]] Status append(std::string_view bytes) const;

 private:
  std::string path_;
  io::Fd fd_;
};

/// Makes a directory and its parents. The failure says what to do: choose another `option`.
[[nodiscard]] Status make_directories(const std::string& path, std::string_view option);

}  // namespace corro::launch
