// NamedGroup: the named operations of one group on one rank. It holds the rank's queue, on the
// leader (group rank 0) also the negotiator, the requests that wait for their names, and the
// buckets that run. Its owner carries its messages and runs its steps. Without I/O and without a
// clock of its own.
//
//   CORRO_TRY(named.submit(work, 0, now, deadline));
//   CORRO_TRY(named.advance(lane_has_room));
//   while (auto message = named.take_message()) send(*message);
//   while (auto step = named.take_step()) run(*step);
//
// A request:
//
//   waits       submit() has given its name to the queue. After three quarters of its time the
//               group asks the leader which ranks are missing. After a second the flight recorder
//               shows the request that waits longest
//   runs alone  its turn has come: the step is the caller's own work
//   in bucket   its turn has come together with others. Their tensors are copied into one buffer,
//               and the step is a work of the group's own. finish_buckets() copies the results out
//   over        its work has heard of it. In a bucket finish_buckets() does that. A request that
//               waits too long, or that the queue fails, ends without having run
//
// A single request takes a buffer too if this rank has joined and lacks other parts of the bucket,
// or if a plan starts it and the members share no memory. Requests that a plan has started wait
// again when the queue takes them back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/board/segment_pool.h"
#include "named/named_negotiator.h"
#include "named/named_queue.h"
#include "obs/flight_recorder.h"
#include "obs/timeline_log.h"
#include "runtime/shown_wait.h"
#include "runtime/work.h"
#include "wire/frame.h"

namespace corro::runtime {

/// kReady: to the leader. kOrder: to all other members.
struct NamedMessage {
  wire::ControlKind kind = wire::ControlKind::kReady;
  std::string text;
};

/// The next operation of a lane, which has all of its request's timeout from now on, or one that is
/// given up on all members.
struct NamedStep {
  named::NamedLane lane = named::NamedLane::kOrdered;
  uint64_t op = 0;
  std::shared_ptr<WorkState> work = nullptr;  ///< Null: given up because of `cause`.
  size_t index = 0;                           ///< The request in `work`.
  Status cause = {};
  /// Set: operations from `op` on are taken back, and the lane's next one has this id.
  std::optional<uint64_t> resume = {};
};

/// The work of a rank that joins. It is done once every member has joined. `last` then holds the
/// world rank that joined last; it stays valid until then. Zero `timeout`: it waits for ever.
[[nodiscard]] std::shared_ptr<WorkState> make_join_work(int32_t* last, Duration timeout);

struct NamedGroupOptions {
  int32_t rank = 0;                         ///< In the group.
  std::vector<int32_t> world_ranks;         ///< By group rank.
  named::FusionOptions fusion = {};         ///< Of the leader; it tells the others.
  bool by_messages = false;                 ///< Members share no memory.
  collective::Segment* segment = nullptr;   ///< For buckets; outlives the group.
  obs::TimelineLog* timeline = nullptr;     ///< Notes who waits for a name; outlives the group.
  obs::FlightRecorder* recorder = nullptr;  ///< Shows what waits longest; outlives the group.
};

/// Loop-confined.
class NamedGroup {
 public:
  explicit NamedGroup(NamedGroupOptions options);

  /// Takes in request `index` of a work, under its name. Errors: NamedQueue::submit's; the request
  /// is the caller's to end then.
  [[nodiscard]] Status submit(const std::shared_ptr<WorkState>& work, size_t index, Time now,
                              Time deadline);
  /// Takes in the work of a join: nothing more may be submitted until it is over. At the deadline
  /// only the work ends: this rank stays joined, and may join again. ALREADY_EXISTS if one waits.
  [[nodiscard]] Status join(const std::shared_ptr<WorkState>& work, Time now, Time deadline);
  /// Takes in what a member says. An error means that it does not keep to the protocol: the group
  /// cannot go on.
  [[nodiscard]] Status hear(int32_t from, wire::ControlKind kind, std::string_view text);
  /// Decides what can be decided, a new run only if the ordered lane has `room`. Errors as hear().
  [[nodiscard]] Status advance(bool room);
  [[nodiscard]] std::optional<NamedMessage> take_message();
  /// Steps of one lane come in order of their op ids; only those given up come early.
  [[nodiscard]] std::optional<NamedStep> take_step();

  /// Hands the results of buckets that have run to their parts; true if there were any.
  bool finish_buckets();
  /// Planned operations below this id have ended here.
  void retire_planned(uint64_t below);
  /// Ends submissions whose deadline is over, and asks about those that come near it; true if there
  /// were any. Requires that all steps have been taken.
  bool check(Time now);
  /// Ends everything with this cause; called once, when the lanes' operations are over.
  void fail(const Status& cause);

  /// Something waits for its name's turn or runs in a bucket, or others may need this rank, which
  /// has joined.
  [[nodiscard]] bool busy() const {
    return !submissions_.empty() || !buckets_.empty() || queue_.has_pending() || queue_.joins();
  }
  /// A submission has not started yet.
  [[nodiscard]] bool waiting() const { return !submissions_.empty(); }
  /// A message has come since the last advance().
  [[nodiscard]] bool heard() const { return heard_; }
  /// The earliest time at which check() has something to do.
  [[nodiscard]] Time next_check() const;

 private:
  using OpRequest = collective::OpRequest;
  struct Submission {
    std::shared_ptr<WorkState> work;
    size_t index = 0;
    Time submitted, ask_at, deadline;
    bool asked = false;  ///< The leader, who has not submitted it.
    uint64_t span = 0;   ///< In the timeline.
    [[nodiscard]] const OpRequest& request() const { return work->requests[index]; }
  };
  struct Part {
    uint64_t token = 0;
    Submission submission;
    uint64_t offset_bytes = 0;
  };
  struct RunningBucket {
    named::NamedLane lane = named::NamedLane::kOrdered;
    uint64_t op = 0;
    std::shared_ptr<WorkState> work;
    std::vector<Part> parts;
    collective::SegmentPool::Buffer buffer;
  };

  [[nodiscard]] int32_t own_world_rank() const {
    return options_.world_ranks[static_cast<size_t>(options_.rank)];
  }
  [[nodiscard]] bool leads() const { return negotiator_.has_value(); }
  /// `code`: what becomes of it.
  [[nodiscard]] Submission take(uint64_t token, Code code = Code::kOk);
  [[nodiscard]] uint64_t begin_wait(const OpRequest& request) const;
  void watch_oldest(Time now);
  NamedStep begin(const named::NamedStart& start);
  [[nodiscard]] static OpRequest bucket_request(const named::NamedStart& start,
                                                const std::vector<Part>& parts, std::byte* data);
  void fill_parts(const named::NamedStart& start, const std::vector<Part>& parts,
                  collective::SegmentPool::Buffer buffer) const;
  Result<std::shared_ptr<WorkState>> fill_bucket(const named::NamedStart& start,
                                                 std::vector<Part> parts);
  void take_failures();
  NamedStep take_back(const named::NamedStart& start);
  void expire(uint64_t token, Time now);
  void end(const Submission& submission, const Status& cause);

  NamedGroupOptions options_;
  named::NamedQueue queue_;
  std::optional<named::Negotiator> negotiator_;
  collective::SegmentPool staging_;
  std::unordered_map<uint64_t, Submission> submissions_;  ///< By token.
  std::vector<RunningBucket> buckets_;
  /// Planned operations that run where their tensors are, by id, until they are retired.
  std::deque<std::pair<uint64_t, Part>> planned_in_place_;
  std::deque<NamedMessage> messages_;
  std::deque<NamedStep> given_up_;
  ShownWait shown_;    ///< The submission that waits longest.
  Time ask_again_at_;  ///< The leader, who has not submitted that one.
  uint64_t next_token_ = 0;
  Time next_due_ = Time::never();  ///< No submission is due before.
  bool heard_ = false;
};

}  // namespace corro::runtime
