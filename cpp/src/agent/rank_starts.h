// RankStarts: starts ranks as START says, with the call that CALL has brought for them, and table
// servers without one.
#pragma once

#include "agent/messages.h"
#include "agent/station.h"
#include "agent/worker_service.h"
#include "io/fd.h"

namespace corro::agent {

/// Loop-confined.
class RankStarts {
 public:
  RankStarts(Station& station, WorkerService& workers) : station_(station), workers_(workers) {}

  /// Says REFUSED if the rank cannot be started.
  void hear(const Subject& about, const Start& start);
  void hear(const Subject& about, const Call& call);
  /// No other message starts ranks.
  void hear(const Subject& /*about*/, const auto& /*other*/) {}

 private:
  Result<pid_t> start_rank(const Subject& about, const Start& start);
  Status name_program(WorkerSpec& spec) const;

  Station& station_;
  WorkerService& workers_;
  io::Fd call_;  ///< A memfd with all pieces that came, or invalid.
};

}  // namespace corro::agent
