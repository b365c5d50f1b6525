// Driver: an engine in a real process, for the threads that call it.
//
// A synchronous caller takes the baton (baton.h) if it is free, moves its own operation (mover.h),
// and releases the baton: no hand-off. Otherwise work is posted, and the progress thread
// (progress_thread.h), asleep until then (watch.h), moves it.
//
//   open      create() until close(): calls, peers' streams and losses come in any order.
//   closed    close() waits a little until what was said is out, takes the streams that have come,
//             and says goodbye in all. Calls fail. The progress thread still admits who dials, and
//             each stream that comes gets a goodbye.
//   ended     the destructor joins the thread, and the streams that it admitted last get theirs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "runtime/baton.h"
#include "runtime/buckets.h"
#include "runtime/engine.h"
#include "runtime/ladder.h"
#include "runtime/liveness_links.h"
#include "runtime/mover.h"
#include "runtime/progress_thread.h"
#include "runtime/timeline.h"
#include "runtime/watch.h"
#include "runtime/work.h"

namespace corro::runtime {

struct DriverOptions {
  io::EventFd doorbell{io::Fd()};  ///< The one that peers ring; they hold copies.
  std::vector<io::Fd> peer_bells;  ///< By rank; invalid for remote ranks and the own.
  EngineOptions engine;            ///< Let go before the bells: its streams ring when they close.
  std::vector<int32_t> peer_pids;  ///< By rank; 0: not watched.
  /// Makes streams when they are first used. Null: there are all that there will be.
  std::unique_ptr<transport::Connector> connector = nullptr;
  std::unique_ptr<LivenessLinks> liveness = nullptr;  ///< Null where all ranks are on one host.
  std::shared_ptr<EpochLink> epochs = nullptr;        ///< Null in a job that is not elastic.
  LadderOptions caller_ladder;
  LadderOptions progress_ladder{.spins = 0, .yields = 64};
};

/// Thread-safe, but for destruction.
class Driver {
 public:
  static Result<std::unique_ptr<Driver>> create(DriverOptions options);
  /// Closes the engine and joins the progress thread. Never called in a forked child: the memory is
  /// let go there.
  ~Driver();

  /// Says goodbye to the other ranks. What is in flight, and whatever comes later, fails with
  /// CANCELLED. Threads inside of other calls return, so the driver can be destroyed then.
  void close();

  /// Starts the work on the progress thread. Does not block.
  void submit(Group& group, std::shared_ptr<WorkState> work);
  /// submit() for a WorkState::then: the thread that has called it starts the work, or hands it on.
  void submit_next(Group& group, std::shared_ptr<WorkState> work);
  /// Starts the work and moves it on the calling thread as long as that need not sleep; what is
  /// left then is the progress thread's.
  void try_run(Group& group, const std::shared_ptr<WorkState>& work);
  /// The same, until another work is done, which ends after `work` does.
  void try_run(Group& group, const std::shared_ptr<WorkState>& work, const WorkState& until);
  /// The same for one operation. Null: it is over, with `status`. One that is small and whose peers
  /// are there costs no memory and no hand-off.
  std::shared_ptr<WorkState> try_run(Group& group, const collective::OpRequest& request,
                                     Status& status);
  /// try_run(), and returns when the work is done.
  void run(Group& group, const std::shared_ptr<WorkState>& work);
  /// The same for one operation, whose result it returns.
  Status run(Group& group, const collective::OpRequest& request);
  /// PulledLane::next(); moves the engine meanwhile, as long as that need not sleep.
  [[nodiscard]] Result<PulledFiring> next(PulledLane& lane, Duration timeout);
  /// PulledLane::done(), and the engine goes on.
  [[nodiscard]] Status done(PulledLane& lane, const PulledFiring& firing, const Status& outcome);
  /// Buckets::ready(), Buckets::close() and Buckets::join(), and the engine goes on.
  BucketSet::Ready ready(Buckets& buckets, uint32_t part);
  [[nodiscard]] Status close(Buckets& buckets, uint64_t generation, uint64_t word);
  [[nodiscard]] Status join(Buckets& buckets);
  /// Buckets::wait(); moves the engine meanwhile, as long as that need not sleep.
  [[nodiscard]] Status wait(const Buckets& buckets, uint32_t bucket, Duration timeout);
  /// Runs `task` with the baton, on this thread or the progress thread, and returns when it is
  /// done; throws what it throws.
  void call(const std::function<void(Engine&)>& task);

  /// Engine::serve().
  void serve(std::unique_ptr<collective::ServedLinks> aggregators);

  [[nodiscard]] Timeline& timeline() { return timeline_; }

  /// Immutable facts and thread-safe parts of the engine: rank, size, segment, recorder,
  /// metrics.
  [[nodiscard]] Engine& engine() { return mover_->engine(); }

  /// In a forked child: closes every descriptor of the engine; the driver is dead there.
  void abandon_in_child();
  [[nodiscard]] bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }

 private:
  class Holder;

  Driver(const DriverOptions& options, std::vector<io::Fd> peer_bells)
      : ladder_(options.caller_ladder), peer_bells_(std::move(peer_bells)) {}
  Status set_up(DriverOptions options);
  void flush();

  void post(Mover::Task task);
  template <typename Over>
  void move_until(const Over& over);
  bool run_now(Group& group, const collective::OpRequest& request, Status& status,
               std::shared_ptr<WorkState>& rest);

  const LadderOptions ladder_;      ///< Of callers.
  std::vector<io::Fd> peer_bells_;  ///< By rank.
  std::unique_ptr<Watch> watch_;
  Baton baton_;
  std::unique_ptr<ProgressThread> progress_;
  /// Let go before what its engine's threads wake, and the bells that its streams ring.
  std::unique_ptr<Mover> mover_;
  Timeline timeline_{[this](const auto& task) { call(task); }};
  std::atomic<bool> abandoned_{false};
};

}  // namespace corro::runtime
