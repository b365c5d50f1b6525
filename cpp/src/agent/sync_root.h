// SyncRoot: the folder into which --sync brings files, on the host to which they come.
//
// Every path is taken apart, and each of its folders is opened in the one before it without
// following a link. So nothing is read or written outside of the root, whatever links are there: a
// link in a folder's place is refused, and one in a file's place is replaced. How the root itself
// is reached, by links or not, is the user's business.
#pragma once

#include <string>
#include <utility>

#include "agent/synced_file.h"
#include "base/status.h"
#include "io/fd.h"

namespace corro::agent {

/// Loop-confined. Failures name the path with the root in front.
class SyncRoot {
 public:
  /// Opens the folder, and makes it if there is none; it and those above it that are missing are
  /// for their owner only.
  [[nodiscard]] static Result<SyncRoot> open(const std::string& path);

  /// Where a path below the root lies: the folder, and its name there.
  struct Place {
    int folder;  ///< Borrowed until the next call.
    std::string name;
    std::string whole;  ///< "ROOT/path", for messages.
  };
  /// Missing folders are made, for their owner only. FAILED_PRECONDITION where a link is in a
  /// folder's place.
  [[nodiscard]] Result<Place> find(const std::string& path);
  /// Makes the folder unless it is there, and sets its permissions. Another user's folder stays as
  /// it is; PERMISSION_DENIED if it is open to more users than wanted.
  [[nodiscard]] Status set_folder(const std::string& path, uint16_t permissions);

 private:
  SyncRoot(std::string path, io::Fd root) : path_(std::move(path)), root_(std::move(root)) {}
  [[nodiscard]] std::string whole(const std::string& path) const { return path_ + "/" + path; }
  [[nodiscard]] Result<int> open_folder(const std::string& path);
  [[nodiscard]] Result<io::Fd> step_into(int folder, const std::string& name,
                                         const std::string& path) const;

  std::string path_;
  io::Fd root_;
  std::string open_path_;  ///< Of the folder that was opened last; files come folder by folder.
  io::Fd open_;
};

/// Whether a path leads below the root, written in one way only: no "..", no "//", not absolute.
[[nodiscard]] bool is_path_below(const std::string& path);

/// A file that is being brought: under a name of its own in the folder of its place, for its owner
/// only, until place() or the end of this. What a killed agent has left is removed by the next one:
/// nobody holds its lock any more.
class SyncedPart {
 public:
  SyncedPart() = default;
  ~SyncedPart() { drop(); }
  SyncedPart(SyncedPart&& other) noexcept;
  SyncedPart& operator=(SyncedPart&& other) noexcept;

  [[nodiscard]] static Result<SyncedPart> create(const SyncRoot::Place& place);
  /// The same for a link.
  [[nodiscard]] static Result<SyncedPart> create_link(const SyncRoot::Place& place,
                                                      const std::string& target);
  /// At the end of what it holds.
  [[nodiscard]] Status append(BytesView bytes);
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Of all that it holds; to be called once.
  [[nodiscard]] wire::Digest finish() { return digest_.finish(); }
  /// It takes its place there, with these permissions if it is a file.
  [[nodiscard]] Status place(uint16_t permissions);

 private:
  void drop();
  io::Fd folder_;
  io::Fd file_;        ///< Invalid for a link.
  std::string place_;  ///< Its name in the folder, when it is there...
  std::string whole_;  ///< ...and its path, for messages.
  std::string name_;   ///< Until then; "": none.
  uint64_t size_ = 0;
  wire::ContentDigest digest_;
};

/// What names of such files begin with: they are never brought anywhere.
inline constexpr std::string_view kPartPrefix = ".corro-part-";

}  // namespace corro::agent
