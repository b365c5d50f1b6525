// EpochLink: what a worker hears of the job's epochs from its agent, over a connection of its own that
// outlives its engines.
//
//   training    the engine of the last epoch runs. Its progress thread calls poll(). A PREPARE ends
//               that epoch. At once: broken_off() is newer, and the engine fails what is in flight.
//               At the end of a step: prepared() alone is newer, and the worker's thread leaves
//   leaving     the worker's thread closes its engine, and calls next(): that says READY, and
//               waits. A newer PREPARE meanwhile gets another READY. One that leaves since its
//               engine has lost a rank may come before any PREPARE: it says READY of the epoch that
//               it has left, and whom it has lost. A worker that is new in the job begins here
//   joining     COMMIT has come: next() returns it, and the thread makes an engine of that epoch
//
// A worker that never comes here is ended by the agent, in time: it takes no part in the new epoch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "io/fd.h"
#include "wire/agent_protocol.h"
#include "wire/notice.h"

namespace corro::runtime {

/// An epoch that has begun, as one of its members sees it.
struct EpochPlace {
  uint32_t epoch = 0;
  int32_t rank = 0;
  int32_t size = 1;
  bool last = false;  ///< All its members are to save what they have, and to end.
};

/// How a worker has left its last epoch.
struct EpochEnd {
  uint64_t steps = 0;  ///< That it has applied, in all.
  int32_t lost = -1;   ///< The rank there whose loss has ended it; -1: none.
};

/// Thread-safe.
class EpochLink {
 public:
  /// `agent`: CORRO_AGENT; `member`: CORRO_MEMBER_UUID; `joins`: it is new in a job that has begun.
  /// UNAVAILABLE if nobody listens there, PERMISSION_DENIED if another user does.
  static Result<std::shared_ptr<EpochLink>> connect(const std::string& agent,
                                                    const std::string& member, bool joins);

  /// Readable when poll() has something to take.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Takes what has come; never blocks. False once the agent is gone: nothing comes any more.
  bool poll();
  /// The newest epoch of which PREPARE has come; 0: none has.
  [[nodiscard]] uint32_t prepared() { return heard_.lock()->prepared; }
  /// The newest of them for which engines fail what is in flight.
  [[nodiscard]] uint32_t broken_off() { return heard_.lock()->broken_off; }
  /// Why the newest one comes, for people.
  [[nodiscard]] std::string why() { return heard_.lock()->why; }
  /// The last epoch that next() has returned; 0: none.
  [[nodiscard]] uint32_t epoch() { return heard_.lock()->last; }

  /// Says that this worker has left its engine, and blocks until a newer epoch begins than the last
  /// one. `interrupted` is asked several times a second; true ends the wait
  /// with CANCELLED. DEADLINE_EXCEEDED, or UNAVAILABLE if the agent is gone.
  [[nodiscard]] Result<EpochPlace> next(const EpochEnd& end, Time deadline,
                                        const std::function<bool()>& interrupted);

  /// Says that this worker was asked to end: an epoch is to come in which it takes no part. If all
  /// are to leave, one comes with all of them. UNAVAILABLE, or DEADLINE_EXCEEDED, if nobody hears.
  [[nodiscard]] Status leave();

  /// In a forked child: closes the connection. Nothing else may be called after it.
  void abandon_in_child() { fd_.reset(); }

 private:
  struct Heard {
    uint32_t prepared = 0;
    uint32_t broken_off = 0;
    std::string why;
    std::optional<EpochPlace> begun;  ///< The newest.
    uint32_t last = 0;                ///< That next() has returned.
    bool gone = false;
    Status refused;  ///< The agent is of another release.
  };

  EpochLink(io::Fd fd, bool joins) : fd_(std::move(fd)), joins_(joins) {}
  Status send(const wire::AgentMessage& message, Time deadline);
  Status say_ready(uint32_t epoch, const EpochEnd& end, Time deadline);
  static void take(const wire::AgentMessage& message, Heard& heard);

  io::Fd fd_;
  bool joins_;  ///< It has not said so yet.
  Guarded<Heard> heard_;
};

}  // namespace corro::runtime
