#include "runtime/timeline_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "io/fd.h"

namespace corro::runtime {
namespace {

constexpr std::string_view kBegin =
    "[\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}";
constexpr std::string_view kEnd = "\n]\n";
constexpr Duration kShortestPause = std::chrono::milliseconds(20);
constexpr int kPauseFor = 20;  ///< Times as long as a version took.
constexpr size_t kMostWaiting = size_t{16} << 20U;
constexpr mode_t kMode = 0666;

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return status_from_errno("write", errno);
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

/// By read() and write(), where the kernel cannot copy between these files.
Status copy_by_hand(int from, int to, size_t bytes) {
  std::array<char, size_t{64} << 10U> buffer;
  while (bytes > 0) {
    const ssize_t got = ::read(from, buffer.data(), std::min(bytes, buffer.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_from_errno("read", errno);
    if (got == 0) return {Code::kDataLoss, "it was cut meanwhile"};
    CORRO_TRY(write_all(to, {buffer.data(), static_cast<size_t>(got)}));
    bytes -= static_cast<size_t>(got);
  }
  return {};
}

Status copy(int from, int to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t copied = copy_file_range(from, nullptr, to, nullptr, bytes, 0);
    if (copied <= 0) return copy_by_hand(from, to, bytes);
    bytes -= static_cast<size_t>(copied);
  }
  return {};
}

}  // namespace

Result<TimelineFile> TimelineFile::create(std::string path) {
  TimelineFile file(std::move(path));
  file.waiting_ = kBegin;
  CORRO_TRY(file.publish());
  return file;
}

Time TimelineFile::due() const {
  if (waiting_.empty()) return Time::never();
  return waiting_.size() > kMostWaiting ? Time{} : next_;
}

Status TimelineFile::publish() {
  const Time began = monotonic_now();
  const std::string next = path_ + ".tmp";
  Status written = write_version(next);
  if (written.ok() && std::rename(next.c_str(), path_.c_str()) != 0)
    written = status_from_errno("rename", errno);
  const Time ended = monotonic_now();
  next_ = ended + std::max(kShortestPause, (ended - began) * kPauseFor);
  if (!written.ok()) {
    (void)::unlink(next.c_str());
    return written.with_context("timeline " + path_);
  }
  size_ += waiting_.size();
  waiting_.clear();
  return {};
}

Status TimelineFile::write_version(const std::string& path) const {
  const io::Fd to(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (!to.valid()) return status_from_errno("open", errno);
  if (size_ > 0) {
    const io::Fd from(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!from.valid()) return status_from_errno("open", errno);
    CORRO_TRY(copy(from.get(), to.get(), size_));
  }
  CORRO_TRY(write_all(to.get(), waiting_));
  return write_all(to.get(), kEnd);
}

}  // namespace corro::runtime
