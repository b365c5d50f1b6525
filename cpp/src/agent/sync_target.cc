#include "agent/sync_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace corro::agent {
namespace {

constexpr uint64_t kComparedAtOnce = uint64_t{4} << 20U;  ///< Bytes, before the loop goes on.
constexpr size_t kFilesAtOnce = 64;
constexpr uint64_t kAhead = uint64_t{2} << 20U;  ///< Bytes that are on the way.
constexpr size_t kFilesPerNews = 64;

/// Below the root, and nowhere else.
bool is_inside(const std::string& path) {
  const std::filesystem::path parts(path);
  return !path.empty() && parts.is_relative() &&
         std::ranges::none_of(parts, [](const auto& part) { return part == ".." || part.empty(); });
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  return error ? status_from_errno(path, error.value()) : Status();
}

mode_t mode_of(const SyncedFile& file) { return file.executable ? 0777 : 0666; }

}  // namespace

void SyncTarget::hear(const Sync& sync) {
  if (state_ != State::kListing) return;
  root_ = sync.root;
  files_.insert(files_.end(), sync.files.begin(), sync.files.end());
  const auto strange = std::ranges::find_if_not(files_, is_inside, &SyncedFile::path);
  if (strange != files_.end())
    return check({Code::kInvalidArgument, strange->path + ": not below the folder"});
  if (sync.last) state_ = State::kComparing;
}

void SyncTarget::advance() {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kFilesAtOnce && busy() && compared_ < files_.size(); ++i) {
    if (bytes > kComparedAtOnce) return;
    bytes += files_[compared_].size;
    check(compare(compared_++));
  }
  if (!busy() || compared_ < files_.size()) return;
  state_ = lacking_.empty() ? State::kDone : State::kFetching;
  say_lacking();
  ask_ahead();
}

/// What is small enough to be known already is made at once.
Status SyncTarget::compare(size_t number) {
  const SyncedFile& file = files_[number];
  const std::string path = root_ + "/" + file.path;
  struct stat facts{};
  const bool there = lstat(path.c_str(), &facts) == 0;
  const bool may_fit = there && file.link.empty() == (S_ISREG(facts.st_mode) != 0) &&
                       (!file.link.empty() || static_cast<uint64_t>(facts.st_size) == file.size);
  if (may_fit) {
    CORRO_ASSIGN(SyncedFile here, describe_file(root_, file.path));
    if (here == file) return {};
    here.executable = file.executable;
    if (here == file) {
      const mode_t all = facts.st_mode & 0777U;
      const mode_t mode = file.executable ? all | S_IXUSR : all & ~mode_t{S_IXUSR};
      return chmod(path.c_str(), mode) == 0 ? Status() : status_from_errno(path, errno);
    }
  }
  if (!file.link.empty() || file.size == 0) return make_small(file);
  lacking_.push_back(static_cast<uint32_t>(number));
  lacking_bytes_ += file.size;
  return {};
}

/// A link, or an empty file.
Status SyncTarget::make_small(const SyncedFile& file) {
  CORRO_TRY(open_part(file));
  if (file.link.empty()) return close_part(file);
  const std::string beside = part_path_;
  drop_part();
  const std::string path = root_ + "/" + file.path;
  if (symlink(file.link.c_str(), beside.c_str()) != 0) return status_from_errno(path, errno);
  if (rename(beside.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  unlink(beside.c_str());
  return status_from_errno(path, error);
}

// -- fetching -------------------------------------------------------------------------------------

void SyncTarget::ask_ahead() {
  while (state_ == State::kFetching && asked_ < lacking_.size() && on_the_way_ < kAhead) {
    const uint32_t number = lacking_[asked_];
    say_(Want{.file = number, .offset = asked_offset_});
    const uint64_t count = std::min<uint64_t>(kMaxPartBytes, files_[number].size - asked_offset_);
    on_the_way_ += count;
    asked_offset_ += count;
    if (asked_offset_ < files_[number].size) continue;
    ++asked_;
    asked_offset_ = 0;
  }
}

void SyncTarget::hear(const Part& part) {
  if (state_ != State::kFetching || lacking_.front() != part.file) return;
  const SyncedFile& file = files_[part.file];
  if (part.offset == 0) check(open_part(file));
  if (state_ == State::kFetching) check(write_part(part));
  if (state_ != State::kFetching) return;
  if (part.offset + part.bytes.size() >= file.size) {
    check(close_part(file));
    if (state_ != State::kFetching) return;
    lacking_.pop_front();
    --asked_;
    if (lacking_.empty()) state_ = State::kDone;
    if (lacking_.size() % kFilesPerNews == 0) say_lacking();
  }
  ask_ahead();
}

Status SyncTarget::open_part(const SyncedFile& file) {
  const std::string path = root_ + "/" + file.path;
  CORRO_TRY(make_folders(path));
  drop_part();
  part_path_ = fmt::format("{}.corro-{}", path, getpid());
  part_.reset(
      open(part_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode_of(file)));
  return part_.valid() ? Status() : status_from_errno(path, errno);
}

Status SyncTarget::write_part(const Part& part) {
  const SyncedFile& file = files_[part.file];
  const auto expected = std::min<uint64_t>(kMaxPartBytes, file.size - part.offset);
  const bool fits = part.offset < file.size && part.bytes.size() == expected && part_.valid();
  if (!fits) return {Code::kAborted, file.path + " has changed while it was sent; start again"};
  size_t written = 0;
  while (written < part.bytes.size()) {
    const ssize_t count =
        pwrite(part_.get(), part.bytes.data() + written, part.bytes.size() - written,
               static_cast<off_t>(part.offset + written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_from_errno(root_ + "/" + file.path, errno);
    written += static_cast<size_t>(count);
  }
  on_the_way_ -= std::min<uint64_t>(on_the_way_, part.bytes.size());
  lacking_bytes_ -= std::min<uint64_t>(lacking_bytes_, part.bytes.size());
  return {};
}

/// The file is whole: it takes its place if it is the one that was announced.
Status SyncTarget::close_part(const SyncedFile& file) {
  const std::string path = root_ + "/" + file.path;
  CORRO_ASSIGN(const wire::Digest content, wire::digest_of_file(part_.get()));
  if (content != file.content)
    return {Code::kAborted, file.path + " has changed while it was sent; start again"};
  if (rename(part_path_.c_str(), path.c_str()) != 0) return status_from_errno(path, errno);
  part_.reset();
  part_path_.clear();
  return {};
}

void SyncTarget::drop_part() {
  part_.reset();
  if (!part_path_.empty()) unlink(part_path_.c_str());
  part_path_.clear();
}

void SyncTarget::say_lacking() {
  say_(Lacking{.files = static_cast<uint32_t>(lacking_.size()), .bytes = lacking_bytes_});
}

void SyncTarget::check(const Status& status) {
  if (status.ok()) return;
  drop_part();
  state_ = State::kFailed;
  say_(Refused{.code = status.code(), .why = status.message()});
}

}  // namespace corro::agent
