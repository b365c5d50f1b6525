// Driver: an engine in a real process: its progress thread, the baton, sleeping, and the watch over
// peers.
//
// The baton is one word that says who polls. A synchronous caller takes it when it is free and
// nothing is in flight, moves its own operation, and gives it back: no hand-off. Otherwise work is
// posted and the progress thread, asleep in epoll until then, takes the baton and keeps it while
// anything is in flight.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "runtime/engine.h"
#include "runtime/ladder.h"
#include "runtime/liveness_links.h"
#include "runtime/work.h"

namespace corro::runtime {

struct DriverOptions {
  io::EventFd doorbell{io::Fd()};  ///< The one that peers ring; they hold copies.
  std::vector<io::Fd> peer_bells;  ///< By rank; invalid for remote ranks and the own.
  EngineOptions engine;            ///< Let go before the bells: its streams ring when they close.
  std::vector<int32_t> peer_pids;  ///< By rank; 0: not watched.
  std::unique_ptr<LivenessLinks> liveness = nullptr;  ///< Null where all ranks are on one host.
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
  /// Starts the work and moves it on the calling thread as long as that need not sleep; what is
  /// left then is the progress thread's.
  void try_run(Group& group, const std::shared_ptr<WorkState>& work);
  /// The same for one operation. Null: it is over, with `status`. One that is small and whose peers
  /// are there costs no memory and no hand-off.
  std::shared_ptr<WorkState> try_run(Group& group, const collective::OpRequest& request,
                                     Status& status);
  /// try_run(), and returns when the work is done.
  void run(Group& group, const std::shared_ptr<WorkState>& work);
  /// The same for one operation, whose result it returns.
  Status run(Group& group, const collective::OpRequest& request);
  /// Runs `task` with the baton, on this thread or the progress thread, and returns when it is
  /// done; throws what it throws.
  void call(const std::function<void(Engine&)>& task);

  /// Immutable facts and thread-safe parts of the engine: rank, size, segment, recorder.
  [[nodiscard]] Engine& engine() { return *engine_; }
  /// Times the progress thread has woken up.
  [[nodiscard]] uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }

  /// In a forked child: closes every descriptor of the engine; the driver is dead there.
  void abandon_in_child();
  [[nodiscard]] bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }

 private:
  using Task = std::function<void(Engine&)>;
  explicit Driver(LadderOptions caller, LadderOptions progress)
      : caller_ladder_(caller), progress_ladder_(progress) {}
  Status set_up(DriverOptions options);
  Status watch_streams(const std::map<MemberId, int>& streams);
  Status watch_peers(const std::vector<int32_t>& pids);
  void note_losses(std::vector<Loss> losses);

  class Baton;

  void post(Task task);
  void submit_now(Group& group, const std::shared_ptr<WorkState>& work);
  Status give_up(const std::exception& why);
  bool try_take_baton();
  void take_baton();
  void release_baton();
  void move_others();
  void run_tasks();
  void apply_losses();
  bool run_now(Group& group, const collective::OpRequest& request, Status& status,
               std::shared_ptr<WorkState>& rest);
  bool pass();
  void progress_main();
  void move_until_idle();
  void flush();
  void sleep_once();
  void handle(uint64_t event);

  const LadderOptions caller_ladder_;
  const LadderOptions progress_ladder_;
  std::unique_ptr<io::EventFd> doorbell_, wake_;
  std::vector<io::Fd> peer_bells_, pidfds_;  ///< By rank.
  std::unique_ptr<Engine> engine_;           ///< Let go before the bells that its streams ring.
  std::unique_ptr<LivenessLinks> liveness_;  ///< The progress thread's alone.
  std::unique_ptr<io::Epoll> watch_;     ///< Wake, pidfds, liveness: what an idle engine waits for.
  std::unique_ptr<io::Epoll> all_;       ///< The same, and doorbell and streams.
  std::unique_ptr<io::Epoll> readable_;  ///< Streams alone; null if there is one or none.
  std::atomic<uint32_t> baton_{0};       ///< 0 free, 1 taken, 2 taken and somebody sleeps for it.
  std::atomic<uint32_t> posted_{0};      ///< Tasks in tasks_.
  std::atomic<uint32_t> attention_{0};   ///< Losses in losses_.
  /// The progress thread sleeps or is about to: whoever leaves work to it clears this and rings.
  /// Set before the baton is let go, so that nobody can take it and leave work behind unseen.
  std::atomic<uint32_t> parked_{1};
  std::atomic<bool> stopping_{false}, abandoned_{false};
  std::atomic<uint64_t> wakeups_{0};
  Guarded<std::vector<Task>> tasks_;
  Guarded<std::vector<Loss>> losses_;
  std::thread thread_;
};

}  // namespace corro::runtime
