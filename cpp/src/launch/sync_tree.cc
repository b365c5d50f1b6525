#include "launch/sync_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "io/fd.h"
#include "launch/ignore_rules.h"

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

/// One walk over a folder.
class Walk {
 public:
  Walk(fs::path root, fs::path top, fs::path without, const std::function<bool()>& stops)
      : root_(std::move(root)), top_(std::move(top)), without_(std::move(without)), stops_(stops) {
    rules_.add(read_text(top_ / ".git" / "info" / "exclude"), "");
    fs::path at = top_;
    read_rules(at);
    for (const fs::path& part : root_.lexically_relative(top_)) {
      if (part == ".") continue;
      at /= part;
      read_rules(at);
    }
  }

  Status visit(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
         at.increment(error))
      entries.push_back(*at);
    if (error) return status_from_errno(folder.string(), error.value());
    std::ranges::sort(entries);
    for (const fs::directory_entry& entry : entries) CORRO_TRY(visit_entry(entry));
    return {};
  }

  std::vector<agent::SyncedFile> files;

 private:
  /// A path below the work tree's root, as rules have it.
  [[nodiscard]] std::string below_top(const fs::path& path) const {
    const std::string text = path.lexically_relative(top_).string();
    return text == "." ? "" : text;
  }

  void read_rules(const fs::path& folder) {
    const std::string text = read_text(folder / ".gitignore");
    const std::string below = below_top(folder);
    rules_.add(text, below.empty() ? "" : below + "/");
  }

  Status visit_entry(const fs::directory_entry& entry) {
    if (stops_()) return {Code::kCancelled, "stopped before a rank was started"};
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    const auto kind = entry.symlink_status(ignored).type();
    const bool is_folder = kind == fs::file_type::directory;
    if (std::ranges::find(kNever, name) != kNever.end() || entry.path() == without_) return {};
    if (rules_.ignores(below_top(entry.path()), is_folder)) return {};
    if (is_folder) {
      read_rules(entry.path());
      return visit(entry.path());
    }
    if (kind != fs::file_type::regular && kind != fs::file_type::symlink) return {};
    CORRO_ASSIGN(auto file, agent::describe_file(root_.string(),
                                                 entry.path().lexically_relative(root_).string()));
    files.push_back(std::move(file));
    return {};
  }

  const fs::path root_, top_, without_;
  const std::function<bool()>& stops_;
  IgnoreRules rules_;
};

}  // namespace

Result<SyncTree> SyncTree::read(const std::string& root, const std::string& without,
                                const std::function<bool()>& stops) {
  SyncTree tree;
  tree.root_ = fs::path(root).lexically_normal().string();
  if (tree.root_.size() > 1 && tree.root_.ends_with('/')) tree.root_.pop_back();
  Walk walk(tree.root_, find_work_tree(tree.root_), fs::path(without).lexically_normal(), stops);
  CORRO_TRY(walk.visit(tree.root_));
  tree.files_ = std::move(walk.files);
  return tree;
}

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
  const io::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
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

}  // namespace corro::launch
