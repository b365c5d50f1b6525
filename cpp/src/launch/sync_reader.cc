#include "launch/sync_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "agent/sync_root.h"

namespace corro::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kNever = {".git", "__pycache__", "corro-runs"};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The root of the git work tree that has the folder; the folder itself if there is none.
fs::path find_work_tree(const fs::path& folder) {
  std::error_code ignored;
  for (fs::path at = folder;; at = at.parent_path()) {
    if (fs::exists(at / ".git", ignored)) return at;
    if (at == at.parent_path()) return folder;
  }
}

/// Without "." and "..", and without a slash at its end.
fs::path plain(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return normal.has_filename() || normal == normal.root_path() ? normal : normal.parent_path();
}

}  // namespace

SyncReader::SyncReader(const std::string& root, const std::string& without)
    : root_(plain(root)), top_(find_work_tree(root_)), without_(plain(without)) {
  rules_.add(read_text(top_ / ".git" / "info" / "exclude"), "");
  fs::path at = top_;
  for (const fs::path& part : root_.lexically_relative(top_)) {
    if (part == ".") break;
    read_rules(at);
    at /= part;
  }
  folders_.push_back(root_);
}

/// A path below the work tree's root, as rules have it.
std::string SyncReader::below_top(const fs::path& path) const {
  const std::string text = path.lexically_relative(top_).string();
  return text == "." ? "" : text;
}

void SyncReader::read_rules(const fs::path& folder) {
  const std::string below = below_top(folder);
  rules_.add(read_text(folder / ".gitignore"), below.empty() ? "" : below + "/");
}

Status SyncReader::advance() {
  uint64_t most = kBytesAtOnce;
  for (size_t i = 0; i < kEntriesAtOnce && !done() && most > 0; ++i) {
    if (entries_.empty()) {
      const fs::path folder = std::move(folders_.front());
      folders_.pop_front();
      CORRO_TRY(list_folder(folder));
      continue;
    }
    CORRO_TRY(read_entry(entries_.front(), most));
    if (!content_) entries_.pop_front();
  }
  return {};
}

Status SyncReader::list_folder(const fs::path& folder) {
  auto facts = agent::look_at_file(AT_FDCWD, folder.string());
  if (!facts.ok()) return facts.status();
  facts->path = folder.lexically_relative(root_).string();
  files_.push_back(std::move(facts).value());
  read_rules(folder);
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error))
    entries_.push_back(*at);
  if (error) return status_from_errno(folder.string(), error.value());
  std::ranges::sort(entries_);
  return {};
}

bool SyncReader::is_left_out(const fs::directory_entry& entry, bool is_folder) const {
  const std::string name = entry.path().filename().string();
  return std::ranges::find(kNever, name) != kNever.end() || name.starts_with(agent::kPartPrefix) ||
         entry.path() == without_ || rules_.ignores(below_top(entry.path()), is_folder);
}

/// Leaves content_ where the file was not read to its end.
Status SyncReader::read_entry(const fs::directory_entry& entry, uint64_t& most) {
  const std::string path = entry.path().string();
  if (!content_) {
    std::error_code ignored;
    const fs::file_type type = entry.symlink_status(ignored).type();
    const bool is_folder = type == fs::file_type::directory;
    const bool is_known =
        is_folder || type == fs::file_type::regular || type == fs::file_type::symlink;
    if (!is_known || is_left_out(entry, is_folder)) return {};
    if (is_folder) {
      folders_.push_back(entry.path());
      return {};
    }
    CORRO_ASSIGN(agent::SyncedFile file, agent::look_at_file(AT_FDCWD, path));
    file.path = entry.path().lexically_relative(root_).string();
    if (file.kind != agent::SyncedKind::kLink) {
      CORRO_ASSIGN(content_, agent::ContentReader::open(AT_FDCWD, path));
    }
    files_.push_back(std::move(file));
    ++count_;
    if (!content_) return {};
  }
  const uint64_t before = most;
  CORRO_TRY(content_->read(most).with_context(path));
  bytes_ += before - most;
  if (most == 0) return {};
  files_.back().size = content_->size();
  files_.back().content = content_->finish();
  content_.reset();
  return {};
}

}  // namespace corro::launch
