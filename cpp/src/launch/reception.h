// Reception: where agents dial a standalone coordinator (docs/design/0030-coordinator.md).
#pragma once

#include <functional>
#include <string>

#include "agent/message_pipe.h"
#include "io/loop.h"

namespace corro::launch {

/// What the agent of a host is told that has a newer one.
inline constexpr const char* kReplaced = "a newer pod has its place";

/// Loop-confined.
class Reception {
 public:
  virtual ~Reception() = default;

  /// An agent that has proved the job's secret, and said HELLO.
  struct Dialled {
    agent::Hello hello;
    wire::Digest job{};       ///< Of the ranks that it has; zero: it has had none.
    uint32_t generation = 0;  ///< Which pod it is of those that have had the host's name.
    agent::MessagePipe pipe;

    /// FAILED_PRECONDITION if it has ranks of another job than this one.
    [[nodiscard]] Status check_job(const wire::Digest& ours) const {
      if (job == wire::Digest{} || job == ours) return {};
      return {Code::kFailedPrecondition, "it has ranks of another job"};
    }
  };
  using Listener = std::function<void(Dialled)>;

  /// Has the listener called for each one that dials, from now on in this loop. The loop outlives
  /// it, or it is watched in another one before.
  [[nodiscard]] virtual Status watch(io::Loop& loop, Listener listener) = 0;
  /// Closes connections on which nothing is proved or said. To be called when it is due.
  virtual void tick(Time now) = 0;
  [[nodiscard]] virtual Time due() const = 0;
  /// One that cannot be taken is told why, and left. UNAVAILABLE: it is to dial again.
  virtual void refuse(Dialled dialled, const Status& why) = 0;
};

}  // namespace corro::launch
