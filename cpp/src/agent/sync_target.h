// SyncTarget: the files that --sync brings, on the host to which they come.
//
//   listing     SYNC messages say which files there should be
//   comparing   advance() looks at what is there, a few files at a time, since reading takes time
//   fetching    parts of what is missing are asked for in order, a few ahead; each file is written
//               beside its place, and takes that once it is whole and right
//   done        nothing is missing; that was said
//   failed      the reason was said
//
// What is there and was not sent stays as it is.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "io/fd.h"

namespace corro::agent {

/// Loop-confined.
class SyncTarget {
 public:
  /// `say` is for the commander.
  explicit SyncTarget(std::function<void(MessageBody)> say) : say_(std::move(say)) {}
  ~SyncTarget() { drop_part(); }
  SyncTarget(const SyncTarget&) = delete;
  SyncTarget& operator=(const SyncTarget&) = delete;

  void hear(const Sync& sync);
  void hear(const Part& part);
  /// There is something to compare.
  [[nodiscard]] bool busy() const { return state_ == State::kComparing; }
  /// Compares a few.
  void advance();

 private:
  enum class State : uint8_t { kListing, kComparing, kFetching, kDone, kFailed };
  Status compare(size_t file);
  void ask_ahead();
  Status open_part(const SyncedFile& file);
  Status write_part(const Part& part);
  Status close_part(const SyncedFile& file);
  Status make_small(const SyncedFile& file);
  void drop_part();
  void say_lacking();
  void check(const Status& status);

  std::function<void(MessageBody)> say_;
  State state_ = State::kListing;
  std::string root_;
  std::vector<SyncedFile> files_;
  size_t compared_ = 0;
  std::deque<uint32_t> lacking_;  ///< Files; of the first one a part may be here.
  uint64_t lacking_bytes_ = 0;
  size_t asked_ = 0;           ///< Of lacking_: all parts of so many were asked for...
  uint64_t asked_offset_ = 0;  ///< ...and of the one after them so many bytes.
  uint64_t on_the_way_ = 0;    ///< Bytes that were asked for.
  io::Fd part_;                ///< The first one of lacking_, as far as it is here.
  std::string part_path_;
};

}  // namespace corro::agent
