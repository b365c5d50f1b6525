#include "agent/sync_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <ranges>

namespace corro::agent {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr mode_t kOwnerFile = 0600;
constexpr mode_t kOwnerFolder = 0700;

Status make_owner_folders(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), kOwnerFolder) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || path == path.parent_path()) return status_from_errno(path.string(), errno);
  CORRO_TRY(make_owner_folders(path.parent_path()));
  if (mkdir(path.c_str(), kOwnerFolder) == 0 || errno == EEXIST) return {};
  return status_from_errno(path.string(), errno);
}

/// Parts whose agent was killed: nobody holds their lock any more.
void remove_left_parts(int folder) {
  const int fd = openat(folder, ".", kFolderFlags);
  DIR* entries = fd < 0 ? nullptr : fdopendir(fd);
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (!std::string_view(entry->d_name).starts_with(kPartPrefix)) continue;
    const io::Fd part(openat(folder, entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (part.valid() && flock(part.get(), LOCK_EX | LOCK_NB) == 0)
      unlinkat(folder, entry->d_name, 0);
  }
  closedir(entries);
}

std::string name_of_part() {
  constexpr size_t kRandom = 8;
  return std::string(kPartPrefix) + wire::random_hex(kRandom);
}

}  // namespace

bool is_path_below(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) return false;
  return std::ranges::none_of(std::views::split(path, '/'), [](const auto& part) {
    const std::string_view name(part.begin(), part.end());
    return name.empty() || name == "." || name == "..";
  });
}

// -- SyncRoot -------------------------------------------------------------------------------------

Result<SyncRoot> SyncRoot::open(const std::string& path) {
  CORRO_TRY(make_owner_folders(path));
  io::Fd root(::open(path.c_str(), kFolderFlags));
  if (!root.valid()) return status_from_errno(path, errno);
  remove_left_parts(root.get());
  return SyncRoot(path, std::move(root));
}

/// One folder deeper; `path` is for messages.
Result<io::Fd> SyncRoot::step_into(int folder, const std::string& name,
                                   const std::string& path) const {
  if (mkdirat(folder, name.c_str(), kOwnerFolder) != 0 && errno != EEXIST)
    return status_from_errno(whole(path), errno);
  io::Fd next(openat(folder, name.c_str(), kFolderFlags | O_NOFOLLOW));
  if (next.valid()) return next;
  const int error = errno;
  if (const auto there = look_at_file(folder, name); there.ok()) {
    if (there->kind == SyncedKind::kLink)
      return Status(Code::kFailedPrecondition,
                    fmt::format("{} is a link to {} there, a folder here; --sync writes through no "
                                "link: remove it there",
                                whole(path), there->link));
  }
  return status_from_errno(whole(path), error);
}

Result<int> SyncRoot::open_folder(const std::string& path) {
  if (path.empty() || path == ".") return root_.get();
  if (open_.valid() && open_path_ == path) return open_.get();
  io::Fd at;
  for (size_t end = 0; end != std::string::npos;) {
    const size_t begin = end == 0 ? 0 : end + 1;
    end = path.find('/', begin);
    const std::string name = path.substr(begin, end == std::string::npos ? end : end - begin);
    CORRO_ASSIGN(at, step_into(at.valid() ? at.get() : root_.get(), name, path.substr(0, end)));
  }
  remove_left_parts(at.get());
  open_ = std::move(at);
  open_path_ = path;
  return open_.get();
}

Result<SyncRoot::Place> SyncRoot::find(const std::string& path) {
  const size_t slash = path.rfind('/');
  const bool is_at_top = slash == std::string::npos;
  CORRO_ASSIGN(const int folder, open_folder(is_at_top ? "" : path.substr(0, slash)));
  return Place{
      .folder = folder, .name = is_at_top ? path : path.substr(slash + 1), .whole = whole(path)};
}

Status SyncRoot::set_folder(const std::string& path, uint16_t permissions) {
  CORRO_ASSIGN(const int folder, open_folder(path));
  struct stat facts{};
  if (fstat(folder, &facts) != 0) return status_from_errno(whole(path), errno);
  const mode_t there = facts.st_mode & kPermissions;
  if (permissions == there) return {};
  const mode_t others = facts.st_mode & ~(mode_t{S_IFMT} | kPermissions);  // set-group-ID, sticky
  if (fchmod(folder, permissions | others) == 0) return {};
  const bool wider = (there & ~mode_t{permissions}) != 0;
  return errno == EPERM && !wider ? Status() : status_from_errno(whole(path), errno);
}

// -- SyncedPart -----------------------------------------------------------------------------------

SyncedPart::SyncedPart(SyncedPart&& other) noexcept
    : folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      place_(std::move(other.place_)),
      whole_(std::move(other.whole_)),
      name_(std::exchange(other.name_, "")),
      size_(other.size_),
      digest_(other.digest_) {}

SyncedPart& SyncedPart::operator=(SyncedPart&& other) noexcept {
  if (this == &other) return *this;
  drop();
  folder_ = std::move(other.folder_);
  file_ = std::move(other.file_);
  place_ = std::move(other.place_);
  whole_ = std::move(other.whole_);
  name_ = std::exchange(other.name_, "");
  size_ = other.size_;
  digest_ = other.digest_;
  return *this;
}

Result<SyncedPart> SyncedPart::create(const SyncRoot::Place& place) {
  SyncedPart part;
  part.folder_.reset(openat(place.folder, ".", kFolderFlags));
  const std::string name = name_of_part();
  part.file_.reset(openat(part.folder_.get(), name.c_str(),
                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOwnerFile));
  if (!part.file_.valid()) return status_from_errno(place.whole, errno);
  part.name_ = name;
  part.place_ = place.name;
  part.whole_ = place.whole;
  (void)flock(part.file_.get(), LOCK_EX | LOCK_NB);  // a file system may have no locks
  return part;
}

Result<SyncedPart> SyncedPart::create_link(const SyncRoot::Place& place,
                                           const std::string& target) {
  SyncedPart part;
  part.folder_.reset(openat(place.folder, ".", kFolderFlags));
  const std::string name = name_of_part();
  if (symlinkat(target.c_str(), part.folder_.get(), name.c_str()) != 0)
    return status_from_errno(place.whole, errno);
  part.name_ = name;
  part.place_ = place.name;
  part.whole_ = place.whole;
  return part;
}

Status SyncedPart::append(BytesView bytes) {
  digest_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t count = write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_from_errno(whole_, errno);
    size_ += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status SyncedPart::place(uint16_t permissions) {
  if (file_.valid() && fchmod(file_.get(), permissions & kPermissions) != 0)
    return status_from_errno(whole_, errno);
  if (renameat(folder_.get(), name_.c_str(), folder_.get(), place_.c_str()) != 0)
    return status_from_errno(whole_, errno);
  name_.clear();
  file_.reset();
  return {};
}

void SyncedPart::drop() {
  if (!name_.empty()) unlinkat(folder_.get(), name_.c_str(), 0);
  name_.clear();
  file_.reset();
}

}  // namespace corro::agent
