// TimelineText: events of all ranks as Chrome's trace, which Perfetto and chrome://tracing show,
// with the names that Horovod's timeline has.
//
//   TimelineText text;
//   CORRO_TRY(text.add(2, events, offset_ns));
//   file.append(text.take());
//
// A tensor (a name) is a process of the trace, a rank a thread of it. Times are microseconds of
// rank 0's CLOCK_MONOTONIC. Process 0 is of the ranks themselves: cycles, and notes.
//
// Of loaded plans a rank is a process, and a lane a thread of it; where firings of a lane overlap,
// there are further threads of the same lane.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "obs/timeline_log.h"

namespace corro::obs {

/// Loop-confined.
class TimelineText {
 public:
  /// So many names are remembered; beyond that one that comes again is another process.
  static constexpr size_t kMostNames = size_t{1} << 16U;

  /// Adds what a rank's log has noted; `offset_ns` is added to its times. INVALID_ARGUMENT where
  /// the bytes are no events: those before are in.
  [[nodiscard]] Status add(int32_t rank, BytesView events, int64_t offset_ns);
  /// An instant of a rank with a number: "CLOCK_ERROR_US", "DROPPED".
  void note(int32_t rank, std::string_view name, uint64_t time_ns, double value);
  /// JSON objects, each on a line with ",\n" before it, that were added since the last call.
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }
  [[nodiscard]] size_t size() const { return text_.size(); }

 private:
  struct Open {
    int process = 0;
    std::string slice;  ///< "ALLREDUCE".
    std::string what;   ///< Its arguments, as JSON.
  };
  /// A thread of the trace that shows firings of a lane.
  struct Row {
    int thread = 0;
    uint64_t until_ns = 0;  ///< Its last one's end, on the rank's clock.
  };
  [[nodiscard]] int process_of(const std::string& name);
  /// Where a firing is shown: what is there already is over before it begins.
  [[nodiscard]] int row_of(int32_t rank, const TimelineEvent& firing);
  void add(int32_t rank, const TimelineEvent& event, int64_t offset_ns);
  void begin(int32_t rank, const Open& open, std::string_view prefix, double at);
  void add_firing(int32_t rank, const TimelineEvent& firing, int64_t offset_ns);
  void end(int32_t rank, int process, Code code, double at);
  void write_process(int process, const std::string& name, int place);
  void write_thread(int process, int thread, const std::string& name);
  void know(int process, int32_t rank);

  std::string text_;
  int processes_ = 0;
  std::unordered_map<std::string, int> by_name_;
  std::set<std::pair<int, int32_t>> known_;            ///< Threads that have their names.
  bool names_ranks_ = false;                           ///< Process 0 has its name.
  std::map<std::pair<int32_t, uint64_t>, Open> open_;  ///< By rank and span.
  std::map<std::pair<int32_t, std::string>, std::vector<Row>> lanes_;  ///< By rank and name.
  std::map<int32_t, int> threads_;  ///< By rank: of all its lanes so far.
};

/// A JSON string, quoted; what is no UTF-8 becomes '?'.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace corro::obs
