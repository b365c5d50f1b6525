#include "launch/sync_tree.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/fd.h"

namespace corro::launch {

std::vector<agent::Sync> SyncTree::announce() const {
  constexpr size_t kFilesPerMessage = 1000;
  std::vector<agent::Sync> messages;
  for (size_t first = 0; first == 0 || first < files_.size(); first += kFilesPerMessage) {
    const auto begin = files_.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(kFilesPerMessage, files_.size() - first);
    messages.push_back({.root = root_,
                        .files = {begin, begin + static_cast<std::ptrdiff_t>(count)},
                        .last = first + count == files_.size()});
  }
  return messages;
}

Result<agent::Part> SyncTree::read_part(const agent::Want& want) const {
  if (want.file >= files_.size()) return Status(Code::kOutOfRange, "no such file");
  const std::string path = root_ + "/" + files_[want.file].path;
  const io::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return status_from_errno(path, errno);
  agent::Part part{.file = want.file, .offset = want.offset, .bytes = {}};
  part.bytes.resize(agent::kMaxPartBytes);
  size_t filled = 0;
  while (filled < part.bytes.size()) {
    const ssize_t count = pread(fd.get(), part.bytes.data() + filled, part.bytes.size() - filled,
                                static_cast<off_t>(want.offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_from_errno(path, errno);
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  part.bytes.resize(filled);
  return part;
}

std::string describe_lacking(const std::string& folder, uint64_t files, uint64_t bytes) {
  constexpr double kBytesOfMebi = 1 << 20;
  return fmt::format("--sync {}: {} file{}, {:.1f} MiB to send", folder, files,
                     files == 1 ? "" : "s", static_cast<double>(bytes) / kBytesOfMebi);
}

}  // namespace corro::launch
