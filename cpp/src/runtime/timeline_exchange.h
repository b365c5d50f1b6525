// TimelineExchange: brings what each rank has noted to rank 0, in control frames (kTimeline).
//
//   rank r -> 0   its events, at most TimelineLog::kChunk bytes; only when it may
//   0 -> rank r   r may send once more; rank 0 says so each time it has taken what came
//
// So a rank has one message on its way, whatever rank 0 does; what it notes meanwhile waits in its
// log, and what does not fit there is dropped and counted. The same messages tell how far apart the
// clocks of two hosts are; ranks of one host have one clock. Byte tables: docs/wire.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "obs/timeline_log.h"
#include "runtime/clock_offset.h"
#include "runtime/flight.h"

namespace corro::runtime {

/// What one rank noted.
struct TimelineBatch {
  int32_t rank = 0;
  Bytes events;
  int64_t offset_ns = 0;  ///< To add to its times: then they are rank 0's.
  int64_t error_ns = 0;   ///< The most by which that is wrong.
  uint64_t dropped = 0;   ///< Spans, since it began.
};

/// Loop-confined; sans-I/O.
class TimelineExchange {
 public:
  explicit TimelineExchange(EngineParts& parts) : parts_(parts) {}

  /// This rank's log is on. `world`: of the epoch; outlives the exchange, or the next start().
  void start(const GroupFacts& world, obs::TimelineLogOptions options);
  /// This rank notes nothing more. What it has goes out as move() is called.
  void stop();
  /// Sends what may be sent, and looks for what others say, which the engine's poll() brings here.
  void move(Time now);
  void hear(MemberId from, const wire::Control& control, Time now);
  /// On rank 0: what came, and what it has noted itself; those who sent it may send again.
  [[nodiscard]] std::vector<TimelineBatch> take(Time now);
  /// After stop(): everything has gone out; on rank 0, has come in from every rank that is there.
  [[nodiscard]] bool over() const;

 private:
  /// What rank 0 knows of another rank, by its group rank.
  struct Sender {
    ClockOffset clock;
    bool waits = false;  ///< It has sent something and may not send more yet.
    bool open = false;   ///< More is to come: it has not said that this was the last.
  };
  [[nodiscard]] bool collects() const { return world_ != nullptr && world_->rank == 0; }
  void send_events(Time now);
  void take_batch(int32_t rank, const wire::Control& control, Time now);
  void allow(int32_t rank, Time now);
  [[nodiscard]] bool same_host(int32_t rank) const;

  EngineParts& parts_;
  const GroupFacts* world_ = nullptr;  ///< Null before the first start().
  std::vector<Sender> senders_;        ///< Rank 0: by rank.
  std::vector<TimelineBatch> came_;
  std::vector<MemberId> early_;  ///< Who has sent something before start() here.
  bool on_ = false;
  bool may_send_ = true;
  bool said_last_ = true;               ///< Nothing of this rank is still to go.
  std::optional<int64_t> last_answer_;  ///< Difference of rank 0's last stamp from this clock.
};

}  // namespace corro::runtime
