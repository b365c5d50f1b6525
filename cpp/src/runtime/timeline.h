// Timeline: a file that shows what all ranks do, from start() to stop().
//
//   CORRO_TRY(driver.timeline().start("timeline.json", {.marks_cycles = true}));
//   ...
//   CORRO_TRY(driver.timeline().stop());
//
// Every rank starts it; rank 0 writes. A thread of each rank looks every 20 ms: there it sends what
// this rank has noted, or takes what has come, and writes the file. Operations only note.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "base/status.h"
#include "obs/timeline_text.h"
#include "runtime/engine.h"
#include "runtime/timeline_file.h"

namespace corro::runtime {

/// Thread-safe.
class Timeline {
 public:
  /// Runs a task with the baton: Driver::call().
  using Call = std::function<void(const std::function<void(Engine&)>&)>;
  explicit Timeline(Call call) : call_(std::move(call)) {}
  ~Timeline() { (void)stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// FAILED_PRECONDITION while it is on; on rank 0 the kernel's reason if the file cannot be made.
  [[nodiscard]] Status start(const std::string& path, obs::TimelineLogOptions options);
  /// Returns when the file is whole; ranks that send nothing are waited for at most a second. The
  /// first failure of writing, if there was one. Does nothing while it is off.
  [[nodiscard]] Status stop();

 private:
  enum class State : uint8_t {
    kOff,
    kBusy,  ///< start() is at work.
    kOn,
    kStopping,
  };
  [[nodiscard]] Status open(const std::string& path);
  void set(State state);
  void run();
  bool look(bool stopping);
  void write(const std::vector<TimelineBatch>& batches);
  void note_losses(const TimelineBatch& batch);

  Call call_;
  Guarded<State> state_;

  // Whoever has left kOff, until the thread runs; the thread's; whoever has set kStopping, after
  // it.
  std::thread thread_;
  std::optional<TimelineFile> file_;  ///< Of rank 0.
  obs::TimelineText text_;
  std::vector<int64_t> told_error_;     ///< By rank: as the file says.
  std::vector<uint64_t> told_dropped_;  ///< The same.
  Status failure_;
};

}  // namespace corro::runtime
