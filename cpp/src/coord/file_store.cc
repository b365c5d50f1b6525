#include "coord/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "io/files.h"

namespace corro::coord {
namespace {

constexpr mode_t kMode = 0600;
constexpr size_t kMostLeadBytes = 4096;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_folder(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

/// Advises what to do against the kernel's refusal to open or make a file in `folder`.
std::string advice(const std::string& folder, int error) {
  if (error == ENOENT) return fmt::format("make the folder {} first", folder);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return fmt::format("give this user the right to read and write in {}", folder);
  }
  if (error == ENOSPC || error == EDQUOT) return fmt::format("make room in {}", folder);
  return "name another store";
}

Status refuse(const std::string& what, const std::string& path, int error) {
  const Code code = error == EACCES || error == EPERM || error == EROFS
                        ? Code::kPermissionDenied
                        : status_from_errno("", error).code();
  return {code, fmt::format("{}: {}: {}; {}", path, what, std::strerror(error),
                            advice(folder_of(path), error))};
}

/// A lock of the whole file, for writing.
struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

Status write_all(const io::Fd& file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refuse("cannot be written", path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status write_durably(const std::string& path, std::string_view text) {
  const io::Fd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!file.valid()) return refuse("cannot be made", path, errno);
  CORRO_TRY(write_all(file, text, path));
  if (::fsync(file.get()) != 0) return refuse("cannot be written to the disk", path, errno);
  return {};
}

/// Replaces a file, durably: whoever reads it finds the old text or the new one.
Status replace(const std::string& path, std::string_view text) {
  const std::string draft = path + ".new";
  if (Status written = write_durably(draft, text); !written.ok()) {
    ::unlink(draft.c_str());
    return written;
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) return refuse("cannot be made", path, errno);
  const std::string folder = folder_of(path);
  const io::Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid() || ::fsync(opened.get()) != 0) {
    return refuse("cannot be written to the disk", folder, errno);
  }
  return {};
}

/// "" for a file that is not there.
Result<std::string> read_if_there(const std::string& path, size_t most) {
  Result<std::string> text = io::read_file(path, most);
  if (text.ok()) return text;
  if (text.status().code() == Code::kNotFound) return std::string();
  const std::string folder = folder_of(path);
  return Status(text.status().code(),
                fmt::format("{}: cannot be read: {}; give this user the right to read in {}, or "
                            "name another store",
                            path, text.status().message(), folder));
}

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& path) {
  if (path.empty()) return Status(Code::kInvalidArgument, "a store's path is empty");
  const bool is_in_folder = path.ends_with('/') || is_folder(path);
  const std::string record = path + (path.ends_with('/') ? "" : "/") + "record";
  std::unique_ptr<FileStore> store(new FileStore(is_in_folder ? record : path));
  CORRO_TRY(store->open_lock().status());
  CORRO_TRY(store->read().status());
  CORRO_TRY(store->read_lead().status());
  return store;
}

FileStore::~FileStore() { resign(); }

Result<io::Fd> FileStore::open_lock() const {
  const std::string path = path_ + ".lock";
  const std::string folder = folder_of(path);
  io::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!file.valid()) return refuse("cannot be opened", path, errno);
  // The lock's file may be there from better days: records are made in the folder, too.
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return refuse("is read-only", folder, errno);
  return file;
}

Result<FileStore::Lead> FileStore::read_lead() const {
  const std::string path = path_ + ".leader";
  CORRO_ASSIGN(const std::string text, read_if_there(path, kMostLeadBytes));
  if (text.empty()) return Lead();
  Lead lead;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, lead.term);
  if (error != std::errc() || rest == end || *rest != ' ' || !text.ends_with('\n')) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: holds no term; if no coordinator runs, remove it", path));
  }
  lead.name = std::string(rest + 1, end - 1);
  return lead;
}

Result<std::optional<uint64_t>> FileStore::try_lead(const std::string& name) {
  if (lock_.valid()) {
    const Status kept = check_lead();
    if (kept.ok()) return std::optional(term_);
    if (kept.code() != Code::kAborted) return kept;
  }
  CORRO_ASSIGN(io::Fd file, open_lock());
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return std::optional<uint64_t>();
    return refuse("cannot be locked", path_ + ".lock", errno);
  }
  CORRO_ASSIGN(const Lead last, read_lead());
  std::string line = name.substr(0, kMostLeadBytes / 2);
  std::ranges::replace(line, '\n', ' ');
  CORRO_TRY(replace(path_ + ".leader", fmt::format("{} {}\n", last.term + 1, line)));
  lock_ = std::move(file);
  term_ = last.term + 1;
  return std::optional(term_);
}

Result<std::string> FileStore::leader() {
  CORRO_ASSIGN(const io::Fd file, open_lock());
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(file.get(), F_OFD_GETLK, &lock) != 0) {
    return refuse("cannot be asked for its lock", path_ + ".lock", errno);
  }
  if (lock.l_type == F_UNLCK) return std::string();
  CORRO_ASSIGN(const Lead lead, read_lead());
  return lead.name;
}

Result<std::string> FileStore::read() { return read_if_there(path_, kMostRecordBytes); }

Status FileStore::check_lead() {
  CORRO_ASSIGN(const Lead last, read_lead());
  if (lock_.valid() && last.term == term_) return {};
  resign();
  CORRO_ASSIGN(const std::string now, leader());
  return not_leading(now, path_);
}

Status FileStore::write(const std::string& record) {
  CORRO_TRY(check_size(record, path_));
  CORRO_TRY(check_lead());
  return replace(path_, record);
}

Status FileStore::renew() { return check_lead(); }

Time FileStore::leads_until() const { return lock_.valid() ? Time::never() : Time{}; }

void FileStore::resign() {
  if (!lock_.valid()) return;
  // Closing would do, but for children that have the open file, too.
  struct flock lock = whole_file(F_UNLCK);
  (void)::fcntl(lock_.get(), F_OFD_SETLK, &lock);
  lock_.reset();
  term_ = 0;
}

}  // namespace corro::coord
