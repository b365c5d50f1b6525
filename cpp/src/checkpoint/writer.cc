#include "checkpoint/writer.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/crc32c.h"
#include "checkpoint/reader.h"
#include "io/files.h"
#include "plan/json.h"

namespace corro::checkpoint {
namespace {

constexpr std::string_view kPartial = ".partial-";

Status write_text(Disk& disk, const std::string& path, const Manifest& manifest) {
  CORRO_ASSIGN(const std::string text, manifest_to_text(manifest));
  return disk.write_file(path, std::as_bytes(std::span(text)));
}

void compute_checksums(std::span<const std::byte> image, std::span<uint32_t> sums) {
  for (uint32_t& sum : sums) {
    const size_t bytes = std::min<size_t>(kBlockBytes, image.size());
    sum = crc32c(image.first(bytes));
    image = image.subspan(bytes);
  }
}

std::vector<std::string> names_of(const Parts& parts) {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < parts.ranks; ++rank) names.push_back(part_name(rank));
  for (uint32_t table = 0; table < parts.tables.size(); ++table)
    for (uint32_t part = 0; part < parts.tables[table]; ++part)
      names.push_back(table_part_name(table, part));
  return names;
}

Result<std::vector<Manifest>> read_parts(const std::string& folder,
                                         const std::vector<std::string>& names) {
  std::vector<Manifest> parts;
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto text = io::read_file(path, plan::kMostJsonBytes);
    if (!text.ok()) {
      return text.status().with_context(
          fmt::format("{}: it was written, and rank 0 cannot read it (the folder has to be the "
                      "same on all hosts)",
                      path));
    }
    CORRO_ASSIGN(Manifest part, read_manifest(*text, path));
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Gives the finished folder its name. An older checkpoint of the same step is moved away first; if
/// the process is killed between the two renames, the checkpoint before is the newest.
Status publish(Disk& disk, const std::string& root, const std::string& partial, uint64_t step,
               uint64_t attempt) {
  const std::string target = fmt::format("{}/{}", root, folder_name(step));
  const std::string replaced = fmt::format("{}/{}-replaced", root, partial_name(step, attempt));
  const bool is_there = std::filesystem::exists(target);
  if (is_there) CORRO_TRY(disk.rename(target, replaced));
  CORRO_TRY(disk.rename(partial, target));
  return is_there ? disk.remove(replaced) : Status();
}

}  // namespace

std::string folder_name(uint64_t step) { return fmt::format("step-{}", step); }

std::string partial_name(uint64_t step, uint64_t attempt) {
  return fmt::format("{}{}{:x}", folder_name(step), kPartial, attempt);
}

std::string part_name(uint32_t rank) { return fmt::format("rank-{}.json", rank); }

std::string table_part_name(uint32_t table, uint32_t part) {
  return fmt::format("table-{}.part-{}.json", table, part);
}

Status write_part(Disk& disk, const std::string& folder, uint32_t rank, Manifest part,
                  std::span<const std::byte> image) {
  FileEntry& file = part.files.at(0);
  file.checksums.resize(blocks_of(image.size()));
  CORRO_TRY(disk.make_folder(folder));
  Status written;
  {
    const std::jthread sums([&] { compute_checksums(image, file.checksums); });
    written = disk.write_file(fmt::format("{}/{}", folder, file.name), image);
  }
  CORRO_TRY(written);
  return write_text(disk, fmt::format("{}/{}", folder, part_name(rank)), part);
}

Status commit(Disk& disk, const std::string& root, uint64_t step, uint64_t attempt,
              const Parts& parts) {
  const std::string partial = fmt::format("{}/{}", root, partial_name(step, attempt));
  const std::vector<std::string> names = names_of(parts);
  CORRO_ASSIGN(std::vector<Manifest> manifests, read_parts(partial, names));
  CORRO_ASSIGN(const Manifest whole, merge(std::move(manifests)));
  CORRO_TRY(write_text(disk, fmt::format("{}/{}", partial, kManifestName), whole));
  for (const std::string& name : names) CORRO_TRY(disk.remove(fmt::format("{}/{}", partial, name)));
  return publish(disk, root, partial, step, attempt);
}

Status remove_old(Disk& disk, const std::string& root, uint64_t step, size_t keep,
                  const std::set<uint64_t>& needed) {
  CORRO_ASSIGN(std::vector<uint64_t> steps, steps_in(root));
  std::erase_if(steps, [step](uint64_t one) { return one > step; });
  for (size_t i = keep; i < steps.size(); ++i)
    if (!needed.contains(steps[i]))
      CORRO_TRY(disk.remove(fmt::format("{}/{}", root, folder_name(steps[i]))));
  return {};
}

Status remove_partial(Disk& disk, const std::string& root) {
  CORRO_ASSIGN(const std::vector<std::string> names, names_in(root));
  for (const std::string& name : names) {
    if (name.starts_with("step-") && name.find(kPartial) != std::string::npos)
      CORRO_TRY(disk.remove(fmt::format("{}/{}", root, name)));
  }
  return {};
}

Result<FolderLock> FolderLock::take(const std::string& root) {
  const std::string path = root + "/.lock";
  io::Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return status_from_errno(path, errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return FolderLock(std::move(file));
  if (errno == EWOULDBLOCK) {
    return Status(
        Code::kFailedPrecondition,
        root + ": another job writes checkpoints here; give each job a folder of its own");
  }
  // Some network file systems have no locks. Two jobs there are the user's to keep apart.
  if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return FolderLock({});
  return status_from_errno(path, errno);
}

}  // namespace corro::checkpoint
