// How boxes are read. For each file there is a list of copies: bytes of the file, and where they
// go, in ascending order. A window of whole blocks moves over the file, from one copy to the next:
// its blocks are read and checked, and then all copies that begin before its end take their bytes
// out of it. A copy that goes on behind the window stays, and takes the rest out of the next one.
#include "checkpoint/reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/disk.h"
#include "checkpoint/writer.h"
#include "io/fd.h"
#include "io/files.h"
#include "plan/json.h"

namespace corro::checkpoint {
namespace {

constexpr uint64_t kWindowBlocks = 8;

/// The step of a folder's name; nothing for other names, partial ones among them.
std::optional<uint64_t> step_of(std::string_view name) {
  constexpr std::string_view kBegin = "step-";
  if (!name.starts_with(kBegin)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool is_whole = error == std::errc() && end == name.data() + name.size();
  return is_whole && folder_name(step).substr(kBegin.size()) == name ? std::optional(step)
                                                                     : std::nullopt;
}

/// Whole blocks of one file, read and checked. Externally synchronized.
class BlockReader {
 public:
  [[nodiscard]] static Result<BlockReader> open(const std::string& path, const FileEntry& entry) {
    io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts{};
    if (!file.valid() || fstat(file.get(), &facts) != 0) {
      const Status status = status_from_errno(path, errno);
      return errno == ENOENT ? Status(Code::kDataLoss, status.message()) : status;
    }
    if (static_cast<uint64_t>(facts.st_size) != entry.bytes) {
      return Status(Code::kDataLoss, fmt::format("{}: has {} bytes; {} were written", path,
                                                 facts.st_size, entry.bytes));
    }
    (void)posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    return BlockReader(path, entry, std::move(file));
  }

  /// The bytes [from, to) of the file, at most a window; `from` begins a block, `to` ends one or
  /// the file. Valid until the next call.
  [[nodiscard]] Result<std::span<const std::byte>> read(uint64_t from, uint64_t to) {
    CORRO_TRY(fill(from, to));
    const std::span<const std::byte> bytes(buffer_);
    for (uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
      const uint64_t block = (from + at) / kBlockBytes;
      const uint64_t length = std::min(kBlockBytes, bytes.size() - at);
      if (crc32c(bytes.subspan(at, length)) != entry_->checksums[block]) {
        return Status(Code::kDataLoss,
                      fmt::format("{}: damaged between bytes {} and {}: the checksum differs",
                                  path_, from + at, from + at + length));
      }
    }
    return bytes;
  }

 private:
  BlockReader(std::string path, const FileEntry& entry, io::Fd file)
      : path_(std::move(path)), entry_(&entry), file_(std::move(file)) {}

  Status fill(uint64_t from, uint64_t to) {
    buffer_.resize(to - from);
    for (uint64_t at = from; at < to;) {
      const ssize_t count =
          pread(file_.get(), buffer_.data() + (at - from), to - at, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return status_from_errno(path_, errno);
      if (count == 0) return {Code::kDataLoss, fmt::format("{}: ends at byte {}", path_, at)};
      at += static_cast<uint64_t>(count);
    }
    return {};
  }

  std::string path_;
  const FileEntry* entry_;  // The manifest's, which outlives this.
  io::Fd file_;
  std::vector<std::byte> buffer_;
};

/// Bytes of a file, and where they go.
struct Copy {
  uint64_t from;
  uint64_t bytes;
  std::byte* to;
};

/// The end of a window that begins at `from`: as many blocks as these copies need, up to the most.
uint64_t window_end(uint64_t from, std::span<const Copy> open, std::span<const Copy> next,
                    uint64_t file_bytes) {
  const uint64_t most = from + kWindowBlocks * kBlockBytes;
  uint64_t end = from;
  for (const Copy& copy : open) end = std::max(end, copy.from + copy.bytes);
  for (const Copy& copy : next) {
    if (copy.from >= std::min(most, std::max(end, from + kBlockBytes))) break;
    end = std::max(end, copy.from + copy.bytes);
  }
  end = std::min(end, most);
  return std::min(file_bytes, (end + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
}

/// Copies what the window has, and leaves in `copy` what comes behind it.
void take(Copy& copy, uint64_t window, std::span<const std::byte> bytes) {
  const uint64_t count = std::min(copy.bytes, window + bytes.size() - copy.from);
  std::memcpy(copy.to, bytes.data() + (copy.from - window), count);
  copy = {copy.from + count, copy.bytes - count, copy.to + count};
}

/// The story is at the top. The copies are ascending and not empty.
Status carry_out(BlockReader& file, uint64_t file_bytes, std::span<const Copy> next) {
  std::vector<Copy> open;
  while (!open.empty() || !next.empty()) {
    const uint64_t first = open.empty() ? next.front().from : open.front().from;
    const uint64_t from = first / kBlockBytes * kBlockBytes;
    const uint64_t to = window_end(from, open, next, file_bytes);
    CORRO_ASSIGN(const std::span<const std::byte> bytes, file.read(from, to));
    while (!next.empty() && next.front().from < to) {
      open.push_back(next.front());
      next = next.subspan(1);
    }
    for (Copy& copy : open) take(copy, from, bytes);
    std::erase_if(open, [](const Copy& copy) { return copy.bytes == 0; });
  }
  return {};
}

/// For each file of the manifest the copies out of it, ascending.
std::vector<std::vector<Copy>> copies_by_file(const Manifest& manifest,
                                              const std::vector<Wanted>& wanted) {
  std::vector<std::vector<Copy>> copies(manifest.files.size());
  for (const Wanted& target : wanted) {
    const TensorEntry& tensor = manifest.tensors.at(target.tensor);
    for (const Piece& piece : tensor.pieces) {
      for (const Stretch& one : stretches_between(piece.box, target.box, size_of(tensor.dtype)))
        copies[piece.file].push_back({piece.offset + one.from, one.bytes, target.memory + one.to});
    }
  }
  for (std::vector<Copy>& of_file : copies) std::ranges::sort(of_file, {}, &Copy::from);
  return copies;
}

}  // namespace

Result<std::vector<uint64_t>> steps_in(const std::string& root) {
  CORRO_ASSIGN(const std::vector<std::string> names, names_in(root));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

Result<Opened> Opened::open(const std::string& root, uint64_t step) {
  std::string folder = fmt::format("{}/{}", root, folder_name(step));
  const std::string path = fmt::format("{}/{}", folder, kManifestName);
  const auto text = io::read_file(path, plan::kMostJsonBytes);
  if (!text.ok()) return Status(Code::kDataLoss, text.status().message()).with_context(path);
  CORRO_ASSIGN(Manifest manifest, read_manifest(*text, path));
  if (manifest.step != step) {
    return Status(Code::kDataLoss, fmt::format("{}: is of step {}", path, manifest.step));
  }
  CORRO_TRY(check_complete(manifest).with_context(path));
  for (const FileEntry& file : manifest.files)
    CORRO_TRY(BlockReader::open(fmt::format("{}/{}", folder, file.name), file).status());
  return Opened(std::move(folder), std::move(manifest), crc32c(std::as_bytes(std::span(*text))));
}

Status Opened::read(const std::vector<Wanted>& wanted) const {
  const std::vector<std::vector<Copy>> copies = copies_by_file(manifest_, wanted);
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].empty()) continue;
    const FileEntry& entry = manifest_.files[i];
    CORRO_ASSIGN(BlockReader file,
                 BlockReader::open(fmt::format("{}/{}", folder_, entry.name), entry));
    CORRO_TRY(carry_out(file, entry.bytes, copies[i]));
  }
  return {};
}

Status Opened::read_file(size_t file,
                         const std::function<Status(std::span<const std::byte>)>& take) const {
  const FileEntry& entry = manifest_.files.at(file);
  CORRO_ASSIGN(BlockReader reader,
               BlockReader::open(fmt::format("{}/{}", folder_, entry.name), entry));
  for (uint64_t from = 0; from < entry.bytes; from += kWindowBlocks * kBlockBytes) {
    const uint64_t to = std::min(entry.bytes, from + kWindowBlocks * kBlockBytes);
    CORRO_ASSIGN(const std::span<const std::byte> bytes, reader.read(from, to));
    CORRO_TRY(take(bytes));
  }
  return {};
}

Status Opened::verify(const std::function<void(uint64_t bytes)>& progress) const {
  for (size_t file = 0; file < manifest_.files.size(); ++file) {
    const auto take = [&](std::span<const std::byte> bytes) {
      progress(bytes.size());
      return Status();
    };
    CORRO_TRY(read_file(file, take));
  }
  return {};
}

}  // namespace corro::checkpoint
