// The thread of a part's writer takes pages from a queue of a few, computes checksums by blocks, and
// writes. Who packs rows waits for no disk, unless the queue is full and rows have to be out.
#include "table/service/disk_snapshots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/own_thread.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "io/fd.h"
#include "io/random.h"
#include "table/service/row_snapshot.h"
#include "table/service/snapshot_chain.h"
#include "table/service/snapshot_store.h"

namespace corro::table {
namespace {

constexpr size_t kMostQueued = 4;
constexpr size_t kPageBytes = size_t{1} << 20U;

std::string part_file(const Save& save) {
  return fmt::format("table-{}.part-{}.rows", save.table, save.part);
}

/// A new file, written in order, with a checksum for each of a manifest's blocks.
class PartFile {
 public:
  [[nodiscard]] static Result<PartFile> create(std::string path) {
    io::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.valid()) return status_from_errno(path, errno);
    return PartFile(std::move(path), std::move(file));
  }

  [[nodiscard]] Status append(BytesView bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min<size_t>(bytes.size(), checkpoint::kBlockBytes - block_.size());
      block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
      bytes = bytes.subspan(count);
      if (block_.size() == checkpoint::kBlockBytes) CORRO_TRY(write_block());
    }
    return {};
  }

  /// Its rest, and all of it durable. Returns what the manifest says of it.
  [[nodiscard]] Result<checkpoint::FileEntry> finish(std::string name) {
    if (!block_.empty()) CORRO_TRY(write_block());
    if (fsync(file_.get()) != 0) return status_from_errno(path_, errno);
    return checkpoint::FileEntry{std::move(name), bytes_, std::move(checksums_)};
  }

 private:
  PartFile(std::string path, io::Fd file) : path_(std::move(path)), file_(std::move(file)) {
    block_.reserve(checkpoint::kBlockBytes);
  }

  Status write_block() {
    checksums_.push_back(checkpoint::crc32c(block_));
    for (BytesView rest = block_; !rest.empty();) {
      const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return status_from_errno(path_, count == 0 ? ENOSPC : errno);
      rest = rest.subspan(static_cast<size_t>(count));
    }
    bytes_ += block_.size();
    block_.clear();
    return {};
  }

  std::string path_;
  io::Fd file_;
  Bytes block_;
  uint64_t bytes_ = 0;
  std::vector<uint32_t> checksums_;
};

class DiskPart final : public PartWriter {
 public:
  DiskPart(Save save, const PartHead& head, std::function<void()> on_progress)
      : save_(std::move(save)),
        on_progress_(std::move(on_progress)),
        table_(head.spec.name),
        head_(encode_part_head(head)) {
    thread_ = start_own_thread("corro-snapshot", [this] { run(stop_.get_token()); });
  }
  DiskPart(const DiskPart&) = delete;
  DiskPart& operator=(const DiskPart&) = delete;
  ~DiskPart() override {
    stop_.request_stop();
    thread_.join();
  }

  [[nodiscard]] bool has_room() const override {
    const std::scoped_lock lock(mutex_);
    return queue_.size() < kMostQueued || result_;
  }
  void write(Bytes page) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < kMostQueued || result_; });
    if (!result_) queue_.push_back(std::move(page));  // Else nobody takes it any more.
    changed_.notify_all();
  }
  void finish() override {
    const std::scoped_lock lock(mutex_);
    is_complete_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] std::optional<Status> result() const override {
    const std::scoped_lock lock(mutex_);
    return result_;
  }
  /// Blocks until there is a result.
  [[nodiscard]] Status wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return result_.has_value(); });
    return *result_;
  }

 private:
  void run(const std::stop_token& stop) {
    const Status status = write_all(stop);
    {
      const std::scoped_lock lock(mutex_);
      result_ = status;
      changed_.notify_all();
    }
    on_progress_();
  }

  Status write_all(const std::stop_token& stop) {
    checkpoint::RealDisk disk;
    const std::string folder =
        fmt::format("{}/{}", save_.folder, checkpoint::partial_name(save_.step, save_.attempt));
    CORRO_TRY(disk.make_folder(folder));
    const std::string name = part_file(save_);
    CORRO_ASSIGN(PartFile file, PartFile::create(fmt::format("{}/{}", folder, name)));
    CORRO_TRY(file.append(head_));
    CORRO_ASSIGN(const uint64_t rows, write_pages(file, stop));
    CORRO_TRY(file.append(frame_of({})));
    CORRO_ASSIGN(checkpoint::FileEntry entry, file.finish(name));
    const checkpoint::Manifest part{.step = save_.step,
                                    .world = save_.parts,
                                    .files = {std::move(entry)},
                                    .tables = {{table_, save_.steps, rows, {0}, save_.base}}};
    CORRO_ASSIGN(const std::string text, checkpoint::manifest_to_text(part));
    const std::string part_name = checkpoint::table_part_name(save_.table, save_.part);
    return disk.write_file(fmt::format("{}/{}", folder, part_name), std::as_bytes(std::span(text)));
  }

  /// Returns how many rows there were.
  Result<uint64_t> write_pages(PartFile& file, const std::stop_token& stop) {
    uint64_t rows = 0;
    while (auto page = next_page(stop)) {
      if (const auto packed = decode_packed(*page); packed.ok()) rows += packed->keys.size();
      CORRO_TRY(file.append(frame_of(*page)));
      CORRO_TRY(file.append(*page));
      on_progress_();
    }
    if (stop.stop_requested()) return Status(Code::kCancelled, "given up");
    return rows;
  }

  std::optional<Bytes> next_page(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [this] { return !queue_.empty() || is_complete_; });
    if (stop.stop_requested() || queue_.empty()) return std::nullopt;
    Bytes page = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return page;
  }

  const Save save_;
  const std::function<void()> on_progress_;
  const std::string table_;
  const Bytes head_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Bytes> queue_;  ///< With the mutex, as what follows.
  bool is_complete_ = false;
  std::optional<Status> result_;
  std::stop_source stop_;
  std::thread thread_;
};

/// Reads all files of a table, and puts what they hold into the queue.
Status read_parts(const checkpoint::Opened& opened, const std::string& name, PageQueue& queue) {
  CORRO_ASSIGN(const auto* table, find_table(opened, name));
  for (const uint32_t file : table->files) {
    PartReader reader(queue);
    const auto take = [&](BytesView bytes) { return reader.take(bytes); };
    CORRO_TRY(opened.read_file(file, take));
    CORRO_TRY(reader.finish().with_context(
        fmt::format("{}/{}", opened.folder(), opened.manifest().files[file].name)));
  }
  return {};
}

/// The whole one first, so that rows of later ones take the place of those before.
Status read_chain(const std::vector<checkpoint::Opened>& chain, const std::string& table,
                  PageQueue& queue) {
  for (const checkpoint::Opened& opened : chain) CORRO_TRY(read_parts(opened, table, queue));
  return {};
}

/// The rows that a table has in its files, as the manifest says, but no more than they have room for.
uint64_t rows_in(const checkpoint::Manifest& manifest, const checkpoint::TableEntry& table,
                 const TableSpec& spec) {
  uint64_t bytes = 0;
  for (const uint32_t file : table.files) bytes += manifest.files[file].bytes;
  const size_t least = sizeof(uint64_t) + spec.dim * size_of(spec.dtype);
  return std::min(table.rows, bytes / least);
}

/// What a thread throws that has no memory, or may start no thread.
Status short_of(const std::exception& error) {
  return {Code::kResourceExhausted, fmt::format("reading a snapshot: {}", error.what())};
}

template <typename Task>
Status guarded(const Task& task) {
  try {
    return task();
  } catch (const std::exception& error) {
    return short_of(error);
  }
}

class DiskLoading final : public RowsLoading {
 public:
  DiskLoading(std::string folder, uint64_t step, LoadOptions options,
              std::function<void()> on_progress)
      : folder_(std::move(folder)),
        step_(step),
        options_(std::move(options)),
        on_progress_(std::move(on_progress)) {
    thread_ = start_own_thread("corro-restore", [this] { run(); });
  }
  DiskLoading(const DiskLoading&) = delete;
  DiskLoading& operator=(const DiskLoading&) = delete;
  ~DiskLoading() override {
    queue_.give_up();
    thread_.join();
  }

  [[nodiscard]] bool done() const override {
    const std::scoped_lock lock(mutex_);
    return result_.has_value();
  }
  Result<LoadedRows> take() override {
    const std::scoped_lock lock(mutex_);
    return *std::exchange(result_, std::nullopt);
  }

 private:
  void run() {
    auto result = load_or_say_why();
    {
      const std::scoped_lock lock(mutex_);
      result_.emplace(std::move(result));
    }
    on_progress_();
  }

  Result<LoadedRows> load_or_say_why() {
    try {
      return load_rows(folder_, step_, options_, queue_);
    } catch (const std::exception& error) {
      return short_of(error);
    }
  }

  const std::string folder_;
  const uint64_t step_;
  const LoadOptions options_;
  const std::function<void()> on_progress_;
  PageQueue queue_;
  mutable std::mutex mutex_;
  std::optional<Result<LoadedRows>> result_;  ///< With the mutex.
  std::thread thread_;
};

class DiskSnapshots final : public SnapshotStore {
 public:
  explicit DiskSnapshots(std::function<void()> on_progress)
      : on_progress_(std::move(on_progress)) {}

  std::unique_ptr<PartWriter> begin(const Save& save, const PartHead& head) override {
    return std::make_unique<DiskPart>(save, head, on_progress_);
  }

  std::unique_ptr<RowsLoading> begin_load(const std::string& folder, uint64_t step,
                                          const LoadOptions& options) override {
    return std::make_unique<DiskLoading>(folder, step, options, on_progress_);
  }

 private:
  const std::function<void()> on_progress_;
};

}  // namespace

std::unique_ptr<SnapshotStore> disk_snapshots(std::function<void()> on_progress) {
  return std::make_unique<DiskSnapshots>(std::move(on_progress));
}

Status commit_snapshot(const std::string& folder, uint64_t step, uint64_t attempt, uint32_t parts,
                       size_t keep) {
  checkpoint::RealDisk disk;
  CORRO_TRY(checkpoint::commit(disk, folder, step, attempt, {.ranks = 0, .tables = {parts}}));
  return remove_old_snapshots(folder, step, keep);
}

Result<checkpoint::FolderLock> lock_snapshots(const std::string& folder) {
  checkpoint::RealDisk disk;
  CORRO_TRY(disk.make_folder(folder));
  CORRO_ASSIGN(checkpoint::FolderLock lock, checkpoint::FolderLock::take(folder));
  CORRO_TRY(remove_unfinished(folder));
  return lock;
}

Status remove_unfinished(const std::string& folder) {
  checkpoint::RealDisk disk;
  return checkpoint::remove_partial(disk, folder);
}

uint64_t draw_attempt() {
  std::array<std::byte, 6> raw{};
  io::fill_random(raw);
  uint64_t number = 0;
  std::memcpy(&number, raw.data(), raw.size());
  return number << 16U;
}

Result<LoadedRows> load_rows(const std::string& folder, uint64_t step, const LoadOptions& options,
                             PageQueue& queue) {
  const std::string& name = options.spec.name;
  CORRO_ASSIGN(const auto chain, open_chain(folder, step, name));
  std::vector<uint64_t> steps;
  for (const checkpoint::Opened& opened : chain) {
    CORRO_ASSIGN(const auto* table, find_table(opened, name));
    steps.push_back(table->steps);
  }
  CORRO_ASSIGN(const auto* whole, find_table(chain.front(), name));
  const uint64_t rows = rows_in(chain.front().manifest(), *whole, options.spec);
  CORRO_ASSIGN(RowLoader loader, RowLoader::create(options, steps, rows));
  std::thread reader = start_own_thread(
      "corro-reader", [&] { queue.end(guarded([&] { return read_chain(chain, name, queue); })); });
  const Status status = guarded([&] { return queue.hand_all(loader); });
  queue.give_up();  // Nobody takes more.
  reader.join();
  CORRO_TRY(status);
  return LoadedRows{loader.take(), steps.back()};
}

Status write_local_part(const Save& save, const LocalTable& rows,
                        std::shared_ptr<const ChangedKeys> changed) {
  RowSnapshot snapshot(rows, ShardSet().set(), save.steps, kShards, std::move(changed));
  DiskPart part(save, {rows.spec(), save.steps}, [] {});
  while (!part.result()) {
    CORRO_ASSIGN(auto page, snapshot.next(kPageBytes));
    if (!page) break;
    part.write(*std::move(page));
  }
  part.finish();
  return part.wait();
}

Status save_local(const std::string& folder, const LocalTable& rows, uint64_t steps, size_t keep) {
  return save_local(folder, rows, steps, keep, {}, nullptr);
}

Status save_local(const std::string& folder, const LocalTable& rows, uint64_t steps, size_t keep,
                  const std::optional<checkpoint::Base>& base,
                  std::shared_ptr<const ChangedKeys> changed) {
  CORRO_ASSIGN(const checkpoint::FolderLock lock, lock_snapshots(folder));
  const Save save{
      .attempt = draw_attempt(), .step = steps, .steps = steps, .base = base, .folder = folder};
  CORRO_TRY(write_local_part(save, rows, std::move(changed)));
  return commit_snapshot(folder, steps, save.attempt, save.parts, keep);
}

}  // namespace corro::table
