// SyncTarget: the files that --sync brings, on the host to which they come.
//
//   listing     SYNC messages say which files there should be
//   comparing   advance() looks at what is there, a few files and bytes at a time: the agent's loop
//               goes on in between, also in the middle of a large file
//   fetching    parts of what is missing are asked for in order, a few ahead; each file is written
//               beside its place, and takes that once it is whole and right
//   done        nothing is missing; that was said
//   failed      the reason was said
//
// Permissions are those of the other side: a file has them before it takes its place, a folder
// before anything is brought into it. What is there and was not sent stays as it is.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "agent/sync_root.h"

namespace corro::agent {

/// Loop-confined.
class SyncTarget {
 public:
  /// `say` is for the commander.
  explicit SyncTarget(std::function<void(MessageBody)> say) : say_(std::move(say)) {}

  void hear(const Sync& sync);
  void hear(const Part& part);
  /// No other message is about files.
  void hear(const auto& /*other*/) {}
  /// There is something to compare.
  [[nodiscard]] bool busy() const { return state_ == State::kComparing; }
  /// Compares some: at most so many files, and so many bytes of them.
  void advance();
  static constexpr size_t kFilesAtOnce = 64;
  static constexpr uint64_t kBytesAtOnce = uint64_t{4} << 20U;

 private:
  enum class State : uint8_t { kListing, kComparing, kFetching, kDone, kFailed };
  Status compare_some(uint64_t& most);
  Status begin_comparing(const SyncedFile& file);
  Status end_comparing(const SyncedFile& file);
  Status make_folder(const SyncedFile& folder);
  Status make_small(const SyncedFile& file);
  void add_lacking();
  void ask_ahead();
  Status take_part(const Part& part);
  Status close_part(const SyncedFile& file);
  Status finish();
  void say_lacking();
  void check(const Status& status);

  std::function<void(MessageBody)> say_;
  State state_ = State::kListing;
  std::string root_path_;
  std::optional<SyncRoot> root_;  ///< From the first look at what is there on.
  std::vector<SyncedFile> files_;
  size_t compared_ = 0;
  std::optional<ContentReader> reading_;  ///< Of what is there, of the file after those.
  std::deque<uint32_t> lacking_;          ///< Files; of the first one a part may be here.
  uint64_t lacking_bytes_ = 0;
  size_t asked_ = 0;                ///< Of lacking_: all parts of so many were asked for...
  uint64_t asked_offset_ = 0;       ///< ...and of the one after them so many bytes.
  uint64_t on_the_way_ = 0;         ///< Bytes that were asked for.
  uint64_t unsaid_ = 0;             ///< Bytes that came since LACKING.
  std::optional<SyncedPart> part_;  ///< The first one of lacking_, as far as it is here.
};

}  // namespace corro::agent
