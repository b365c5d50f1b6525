// CopyLane: a lane of a loaded plan whose services the engine does itself: from slot to slot, from
// a file to a slot, from a slot to a file.
//
//   start   a little memory is copied at once, and has ended. All else waits
//   thread  takes what has waited longest, copies it piece by piece, has ended, wakes the engine
//   poll    tells the executor what has ended
//   stop    what waits ends with the cause, what is being copied after its piece
//
// A lane has as many threads as it may have such firings in flight. They know bytes and files, and
// touch neither the executor nor its slots.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "io/data_file.h"
#include "runtime/plan_lane.h"

namespace corro::runtime {

/// Loop-confined, but for has_news().
class CopyLane final : public PlanLane {
 public:
  /// The services of `plan`, a rank's part, on the lane `here`, all of which are copies. `wake`,
  /// perhaps null, is thread-safe, and has somebody poll soon.
  CopyLane(const graph::Plan& plan, graph::LaneId here, std::function<void()> wake);
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;
  /// Waits for pieces that are being copied.
  ~CopyLane() override;

  /// Throws std::system_error where the process may have no more threads.
  void serve(graph::Executor& executor) override;
  void start(Time now, const graph::Work& work) override;
  bool poll(Time now) override;
  void stop(const Status& cause, Time now) override;
  [[nodiscard]] bool has_news() const override { return news_.load(std::memory_order_seq_cst); }

 private:
  /// A service's; a service never overlaps itself.
  struct Copy {
    graph::CopySpec spec = {};
    uint32_t every = 1;                     ///< Micro-batches of a firing.
    std::optional<io::DataFile> file = {};  ///< From its first firing on, which may not find it.
  };
  struct Job {
    graph::Ticket ticket;
    Copy* copy = nullptr;
    uint32_t micro = 0;
    std::span<const std::byte> from;
    std::span<std::byte> into;
  };
  struct Ended {
    graph::Ticket ticket;
    Status status;
  };
  struct Jobs {
    std::vector<Job> waiting;  ///< Those in flight are few.
    std::vector<Ended> ended;
    bool over = false;
  };

  void run();
  [[nodiscard]] std::optional<Job> next();
  void end(const Job& job, const Status& status);
  [[nodiscard]] Status copy(const Job& job);
  [[nodiscard]] Status copy_piece(const Job& job, size_t done, size_t bytes) const;

  std::vector<Copy> copies_;  ///< By service of the part.
  uint32_t most_threads_ = 0;
  const std::function<void()> wake_;
  graph::Executor* executor_ = nullptr;
  Guarded<Jobs> jobs_;
  std::atomic<bool> news_{false};
  std::atomic<bool> stopping_{false};
  std::vector<Ended> told_;  ///< Memory for the next ones.
  std::vector<std::thread> threads_;
};

}  // namespace corro::runtime
