// Disk: what writing checkpoints does to a file system. It stands apart so that tests can let any
// step of it fail, and can stop between any two steps as a killed process does.
//
// Each method is durable when it returns: a crash of the machine afterwards does not undo it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace corro::checkpoint {

/// Failures name the path and say the kernel's reason. Everything blocks. Thread-safe.
class Disk {
 public:
  Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  virtual ~Disk() = default;

  /// Makes the folder and those around it; one that is there is fine.
  [[nodiscard]] virtual Status make_folder(const std::string& path) = 0;
  /// Writes a new file, or an old one anew. If it fails, a part of the file may be there.
  [[nodiscard]] virtual Status write_file(const std::string& path,
                                          std::span<const std::byte> bytes) = 0;
  /// Gives a file or folder another name in the same folder; nothing may have that name.
  [[nodiscard]] virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file, or a folder with all that is in it; nothing there is fine.
  [[nodiscard]] virtual Status remove(const std::string& path) = 0;
};

/// The real one. It writes large page-aligned memory past the page cache (O_DIRECT) where the file
/// system takes that: as fast as the disk, and without pushing out what training has cached.
class RealDisk final : public Disk {
 public:
  [[nodiscard]] Status make_folder(const std::string& path) override;
  [[nodiscard]] Status write_file(const std::string& path,
                                  std::span<const std::byte> bytes) override;
  [[nodiscard]] Status rename(const std::string& from, const std::string& to) override;
  [[nodiscard]] Status remove(const std::string& path) override;
};

/// The names in a folder, in no order. NOT_FOUND if it is not there.
[[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& folder);

}  // namespace corro::checkpoint
