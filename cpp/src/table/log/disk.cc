// Reads go to the kernel by its asynchronous calls (io_submit), which every kernel has and containers
// allow: one thread keeps kInFlight reads under way, for 2 to 3 us of processor time each. They
// bypass the page cache, which would be memory beside the table's budget; a file system that cannot
// do so reads through the cache, one after the other.
#include "table/log/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "io/fd.h"

namespace corro::table {
namespace {

/// The disk that this was measured on gives 115 to 130 thousand reads a second from here on, 80
/// thousand at 32 (docs/design/0049-table-tiers.md).
constexpr size_t kInFlight = 128;

Status failure(Code code, const std::string& what, int error) {
  if (error == ENOSPC || error == EDQUOT)
    return {Code::kResourceExhausted, fmt::format("{}: the disk is full", what)};
  return {code, fmt::format("{}: {}", what, std::strerror(error))};
}

Status check_length(const std::string& what, uint64_t offset, size_t wanted, int64_t got) {
  if (got < 0)
    return failure(Code::kDataLoss, fmt::format("{}: read at byte {}", what, offset),
                   static_cast<int>(-got));
  if (static_cast<size_t>(got) == wanted) return {};
  return {Code::kDataLoss,
          fmt::format("{}: read at byte {}: {} of {} bytes are there", what, offset, got, wanted)};
}

/// The kernel's queue of asynchronous reads.
class ReadQueue {
 public:
  /// None where the kernel has no queues, or no more of them.
  static std::optional<ReadQueue> create() {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, kInFlight, &context) != 0) return std::nullopt;
    return ReadQueue(context);
  }
  ~ReadQueue() {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
  }
  ReadQueue(ReadQueue&& other) noexcept : context_(std::exchange(other.context_, 0)) {}
  ReadQueue& operator=(ReadQueue&&) = delete;

  /// `done` is of the type void(const Disk::Read&, int64_t count or negative error). It is called when
  /// the next reads are under way, so that the disk has work meanwhile.
  template <typename Done>
  void read(int fd, std::span<const Disk::Read> reads, const Done& done) {
    size_t begun = 0;
    size_t under_way = 0;
    const auto begin_more = [&] {
      while (begun < reads.size() && under_way < kInFlight) {
        const size_t most = std::min(reads.size() - begun, kInFlight - under_way);
        const int64_t count = submit(fd, reads.first(begun + most), begun);
        if (count <= 0) {
          done(reads[begun++], count < 0 ? count : -EIO);
          continue;
        }
        begun += static_cast<size_t>(count);
        under_way += static_cast<size_t>(count);
      }
    };
    std::array<io_event, kInFlight> events;
    for (begin_more(); under_way > 0;) {
      const size_t count = collect(events);
      under_way -= count;
      begin_more();
      for (size_t i = 0; i < count; ++i) done(reads[events[i].data], events[i].res);
    }
  }

 private:
  explicit ReadQueue(aio_context_t context) : context_(context) {}

  /// How many of them from number `first` on the kernel has taken, or the error of the first.
  int64_t submit(int fd, std::span<const Disk::Read> reads, size_t first) {
    std::array<iocb, kInFlight> blocks;
    std::array<iocb*, kInFlight> pointers;
    const size_t count = reads.size() - first;
    for (size_t i = 0; i < count; ++i) {
      const Disk::Read& read = reads[first + i];
      iocb& block = blocks[i];
      block = {};
      block.aio_lio_opcode = IOCB_CMD_PREAD;
      block.aio_fildes = static_cast<uint32_t>(fd);
      block.aio_buf = reinterpret_cast<uintptr_t>(read.into.data());
      block.aio_nbytes = read.into.size();
      block.aio_offset = static_cast<int64_t>(read.offset);
      block.aio_data = first + i;
      pointers[i] = &block;
    }
    const int64_t taken = syscall(SYS_io_submit, context_, count, pointers.data());
    return taken >= 0 ? taken : -errno;
  }

  /// Waits for one, and returns how many have ended.
  size_t collect(std::span<io_event> events) {
    int64_t count = 0;
    do {
      count = syscall(SYS_io_getevents, context_, 1, events.size(), events.data(), nullptr);
    } while (count < 0 && errno == EINTR);
    CORRO_CHECK(count > 0, count);
    return static_cast<size_t>(count);
  }

  aio_context_t context_;
};

class FileDisk final : public Disk {
 public:
  FileDisk(const std::string& folder, io::Fd file, bool direct)
      : what_("rows on disk in " + folder),
        file_(std::move(file)),
        queue_(direct ? ReadQueue::create() : std::nullopt) {}

  void read(std::span<const Read> reads, const Done& done) override {
    const auto check = [&](const Read& read, int64_t count) {
      done(read, check_length(what_, read.offset, read.into.size(), count));
    };
    if (queue_) {
      queue_->read(file_.get(), reads, check);
    } else {
      for (const Read& one : reads) check(one, read_one(one));
    }
  }

  Status write(uint64_t offset, std::span<const std::byte> from) override {
    while (!from.empty()) {
      const ssize_t count =
          pwrite(file_.get(), from.data(), from.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        return failure(Code::kResourceExhausted, fmt::format("{}: write at byte {}", what_, offset),
                       count < 0 ? errno : ENOSPC);
      from = from.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return {};
  }

  Status reserve(uint64_t offset, uint64_t bytes) override {
    int result = 0;
    do {
      result = fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    // A file system that cannot reserve says so at the write.
    if (result == 0 || errno == EOPNOTSUPP) return {};
    return failure(Code::kResourceExhausted, what_, errno);
  }

  void release(uint64_t offset, uint64_t bytes) override {
    (void)fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }

 private:
  [[nodiscard]] int64_t read_one(const Read& read) const {
    ssize_t count = 0;
    do {
      count =
          pread(file_.get(), read.into.data(), read.into.size(), static_cast<off_t>(read.offset));
    } while (count < 0 && errno == EINTR);
    return count >= 0 ? count : -errno;
  }

  std::string what_;
  io::Fd file_;
  std::optional<ReadQueue> queue_;
};

/// Missing folders on the way are made, all for this user alone.
Status make_folder(const std::string& folder) {
  std::filesystem::path made;
  for (const auto& part : std::filesystem::path(folder)) {
    made /= part;
    if (mkdir(made.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
      return failure(Code::kFailedPrecondition, "rows on disk: " + folder + " cannot be made",
                     errno);
  }
  struct stat known{};
  if (stat(folder.c_str(), &known) == 0 && S_ISDIR(known.st_mode)) return {};
  return failure(Code::kFailedPrecondition, "rows on disk: " + folder + " cannot be made",
                 errno == 0 ? ENOTDIR : errno);
}

}  // namespace

Status Disk::read_all(std::span<const Read> reads) {
  Status first;
  read(reads, [&first](const Read&, const Status& status) {
    if (first.ok()) first = status;
  });
  return first;
}

Result<std::unique_ptr<Disk>> open_disk(const std::string& folder) {
  CORRO_TRY(make_folder(folder));
  std::string name = folder + "/corro-rows-XXXXXX";
  io::Fd file(mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid())
    return failure(Code::kFailedPrecondition, "rows on disk: no file in " + folder, errno);
  (void)unlink(name.c_str());
  const int flags = fcntl(file.get(), F_GETFL);
  const bool direct = fcntl(file.get(), F_SETFL, flags | O_DIRECT) == 0;
  return std::unique_ptr<Disk>(std::make_unique<FileDisk>(folder, std::move(file), direct));
}

}  // namespace corro::table
