// A file, link or folder that --sync brings to other hosts, and what a file holds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/fd.h"
#include "wire/digest.h"

namespace corro::agent {

/// Those that are brought: nothing runs as another user, or stays in another group, because of it.
inline constexpr mode_t kPermissions = 0777;

enum class SyncedKind : uint8_t { kFile, kLink, kFolder };

struct SyncedFile {
  std::string path;  ///< Below the folder that is brought; "." for that folder itself.
  SyncedKind kind = SyncedKind::kFile;
  std::string link = {};      ///< Where a symbolic link leads; else "".
  uint16_t permissions = 0;   ///< Within kPermissions; 0 for a link.
  uint64_t size = 0;          ///< Bytes of a file; else 0.
  wire::Digest content = {};  ///< Of what a file holds; else zero.
  bool operator==(const SyncedFile&) const = default;
};

/// Describes what `name` is in a folder (AT_FDCWD: `name` is its path), all but path and content.
/// NOT_FOUND if there is nothing, FAILED_PRECONDITION if it is no file, link or folder.
[[nodiscard]] Result<SyncedFile> look_at_file(int folder, const std::string& name);

/// Reads a file piece by piece, so that a loop can do other things in between, and computes its
/// digest. Loop-confined.
class ContentReader {
 public:
  /// FAILED_PRECONDITION and others if `name` in the folder is no file that can be read.
  [[nodiscard]] static Result<ContentReader> open(int folder, const std::string& name);
  /// Reads up to `most` bytes and takes them off it: what is left of it is not 0 at the file's end
  /// only.
  [[nodiscard]] Status read(uint64_t& most);
  /// Of what was read, as is the digest.
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Sets the file's permissions if it has others; false if this user may not.
  [[nodiscard]] bool set_permissions(uint16_t permissions);
  /// To be called once.
  [[nodiscard]] wire::Digest finish() { return digest_.finish(); }

 private:
  explicit ContentReader(io::Fd fd) : fd_(std::move(fd)) {}
  io::Fd fd_;
  uint64_t size_ = 0;
  wire::ContentDigest digest_;
  std::vector<std::byte> block_;
};

}  // namespace corro::agent
