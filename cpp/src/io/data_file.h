// DataFile: a file of data, read or written range by range.
//
//   CORRO_ASSIGN(const DataFile file, DataFile::open("samples.bin", DataFile::Use::kRead));
//   CORRO_TRY(file.read(1 << 20, memory));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "io/fd.h"

namespace corro::io {

/// Failures name the path and say the kernel's reason. Everything blocks. Thread-safe.
class DataFile {
 public:
  enum class Use : uint8_t { kRead, kWrite };

  /// To write, a file that is not there is made; one that is there keeps what it holds.
  [[nodiscard]] static Result<DataFile> open(const std::string& path, Use use);

  /// Fills all of `into` from byte `offset` on. OUT_OF_RANGE if the file ends before.
  [[nodiscard]] Status read(uint64_t offset, std::span<std::byte> into) const;
  /// Writes all of `from`, into the page cache: close() or a crash may still lose it.
  [[nodiscard]] Status write(uint64_t offset, std::span<const std::byte> from) const;

 private:
  DataFile(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Fd file_;
};

}  // namespace corro::io
