// DirectoryBootstrap: ranks meet in a directory that all of them see, for example on NFS: one file
// per key.
#pragma once

#include <memory>
#include <string>

#include "io/fd.h"
#include "wire/bootstrap.h"

namespace corro::wire {

/// Externally synchronized. Files stay: use a directory (or a job id) once.
class DirectoryBootstrap final : public Bootstrap {
 public:
  /// Opens `path`, made with mode 0700 if it is missing. PERMISSION_DENIED if it is a symbolic
  /// link, belongs to another user or others may enter it.
  static Result<std::unique_ptr<DirectoryBootstrap>> open(const std::string& path);

  [[nodiscard]] Status put(std::string_view key, BytesView value) override;
  /// Looks again with growing pauses up to 20 ms: file systems on a network tell nobody when a file
  /// appears.
  [[nodiscard]] Result<Bytes> get(std::string_view key, Time deadline) override;
  [[nodiscard]] std::optional<Secret> secret() const override { return std::nullopt; }

 private:
  DirectoryBootstrap(io::Fd directory, std::string path)
      : directory_(std::move(directory)), path_(std::move(path)) {}
  /// NOT_FOUND while the key does not exist.
  Result<Bytes> read(std::string_view key);

  io::Fd directory_;
  std::string path_;
};

/// Returns the name of a key's file: the key as far as it is printable, and a hash that makes it
/// unique.
[[nodiscard]] std::string bootstrap_file_name(std::string_view key);

}  // namespace corro::wire
