// Operation: one collective on its way, moved by poll() and never blocking.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "obs/flight_recorder.h"

namespace corro::collective {

enum class Progress : uint8_t { kIdle, kMoved, kDone };

/// Loop-confined. Implementations: BoardOperation (one host), ScheduleOperation (any group),
/// PairOperation (send, recv).
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Moves as far as it can. `oldest`: no older operation of the group is in flight; shared staging
  /// is for the oldest.
  virtual Progress poll(bool oldest) = 0;
  /// Some member has not begun it and will not: nobody else has touched what it took from pools,
  /// which may be used again. Called before abandon().
  virtual void return_memory() {}
  /// Lets go of everything others could still touch; called once, before an unfinished operation is
  /// destroyed.
  virtual void abandon() {}

  /// Valid once poll() returned kDone.
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] obs::Phase phase() const { return phase_; }
  /// The group rank awaited, or -1.
  [[nodiscard]] int32_t waiting_for() const { return waiting_for_; }
  /// True if, having failed, it leaves the other ranks inside: the group cannot go on.
  [[nodiscard]] bool fatal() const { return fatal_; }
  /// True once the output buffer may hold partial results.
  [[nodiscard]] bool torn() const { return torn_; }

 protected:
  Progress finish(Status status) {
    status_ = std::move(status);
    phase_ = status_.ok() ? obs::Phase::kDone : obs::Phase::kFailed;
    return Progress::kDone;
  }
  Progress give_group_up(Status status) {
    fatal_ = true;
    return finish(std::move(status));
  }
  void wait(obs::Phase phase, int32_t rank) {
    phase_ = phase;
    waiting_for_ = rank;
  }

  Status status_;
  obs::Phase phase_ = obs::Phase::kQueued;
  int32_t waiting_for_ = -1;
  bool torn_ = false;
  bool fatal_ = false;
};

}  // namespace corro::collective
