#include "io/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace corro::io {

Result<DataFile> DataFile::open(const std::string& path, Use use) {
  const bool reads = use == Use::kRead;
  // What is no file, a pipe for example, must not be waited for.
  const int flags = (reads ? O_RDONLY : O_WRONLY | O_CREAT) | O_CLOEXEC | O_NONBLOCK;
  Fd file(::open(path.c_str(), flags, 0666));
  if (file.valid()) return DataFile(path, std::move(file));
  return status_from_errno(fmt::format("cannot open {} to {} it", path, reads ? "read" : "write"),
                           errno);
}

Status DataFile::read(uint64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t count = pread(file_.get(), into.data() + done, into.size() - done, at);
    if (count == 0) {
      return {Code::kOutOfRange, fmt::format("cannot read {} bytes of {} at byte {}: it ends at {}",
                                             into.size(), path_, offset, at)};
    }
    if (count < 0 && errno != EINTR)
      return status_from_errno(fmt::format("cannot read {} at byte {}", path_, at), errno);
    if (count > 0) done += static_cast<size_t>(count);
  }
  return {};
}

Status DataFile::write(uint64_t offset, std::span<const std::byte> from) const {
  size_t done = 0;
  while (done < from.size()) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t count = pwrite(file_.get(), from.data() + done, from.size() - done, at);
    if (count == 0 || (count < 0 && errno != EINTR)) {
      return status_from_errno(fmt::format("cannot write {} at byte {}", path_, at),
                               count == 0 ? ENOSPC : errno);
    }
    if (count > 0) done += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace corro::io
