// ShownWait: an operation that waits for its name, as others see it in the flight recorder. It has
// no flight yet, and nobody would know whom it waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "collective/operation/request.h"
#include "obs/flight_recorder.h"

namespace corro::runtime {

/// At most one at a time. Loop-confined.
class ShownWait {
 public:
  /// The recorder is borrowed.
  explicit ShownWait(obs::FlightRecorder& recorder) : recorder_(&recorder) {}

  /// `token` names the submission.
  void begin(uint64_t token, const collective::OpRequest& request, Time since) {
    const obs::OpRecord record{.op_id = obs::kNoOpId,
                               .kind = request.kind,
                               .dtype = request.dtype,
                               .reduce_op = request.reduce_op,
                               .count = request.count,
                               .name = request.name};
    shown_ = {.token = token, .record = recorder_->begin(record, obs::Phase::kExchange, since)};
  }
  /// Of the submission that is shown.
  [[nodiscard]] std::optional<uint64_t> token() const {
    return shown_ ? std::optional(shown_->token) : std::nullopt;
  }
  /// The world rank that has not submitted it, or -1. Requires token().
  void set_awaited(int32_t rank) {
    if (std::exchange(shown_->awaited, rank) != rank)
      recorder_->set_phase(shown_->record, obs::Phase::kExchange, rank);
  }
  void end(Code code) {
    if (shown_) recorder_->end(std::exchange(shown_, {})->record, code);
  }

 private:
  struct Shown {
    uint64_t token = 0;
    obs::FlightRecorder::Handle record = 0;
    int32_t awaited = -1;
  };
  obs::FlightRecorder* recorder_;
  std::optional<Shown> shown_;
};

}  // namespace corro::runtime
