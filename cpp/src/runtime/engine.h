// Engine: all groups and operations of one rank. Sans-I/O: poll(now) moves everything and never
// blocks.
//
//   engine->submit(engine->world(), work);
//   while (!work->done()) engine->poll(now);
//
// The process's driver (driver.h) or a World (cpp/testing) decides who polls, and when to sleep.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/board_exchange.h"
#include "collective/segment.h"
#include "graph/executor.h"
#include "obs/flight_recorder.h"
#include "runtime/group.h"
#include "transport/endpoint.h"
#include "transport/stream.h"

namespace corro::runtime {

/// What the engine knows of another rank.
struct EnginePeer {
  std::string where;  ///< For messages: "pid 4711" or "host:port".
  /// Set for ranks on this host; shared by the engines of a process. Outlives the stream, which
  /// looks at its sleeping word to the last.
  std::shared_ptr<collective::Segment> segment;
  std::unique_ptr<transport::Stream> stream;  ///< Null for the own rank.
  int32_t pid = 0;  ///< Not 0: this process may read that one's memory (own entry: its own pid).
};

struct EngineOptions {
  int32_t rank = 0;
  int32_t size = 1;
  Duration timeout = std::chrono::seconds(60);              ///< Of every operation that names none.
  std::unique_ptr<obs::FlightRecorder> recorder = nullptr;  ///< Null: the engine makes its own.
  bool use_board = true;  ///< false: schedules over streams even among local ranks.
  std::shared_ptr<collective::Segment> segment;  ///< The own one; shared as above.
  std::vector<EnginePeer> peers;                 ///< By rank.
  /// Rings the doorbell of a local rank asleep with operations in flight.
  std::function<void(int32_t rank)> wake;
  /// Chooses algorithms where ranks exchange messages; the same on all ranks.
  collective::SelectionTable selection = {};
  FusionOptions fusion = {};   ///< Of named operations; the leader's counts.
  bool deterministic = false;  ///< Nothing that timing decides may change a result's bits.
  bool commit = false;         ///< Collectives end with a closing round; the same on all ranks.
};

/// What happened so far; read by counters and tests.
struct EngineCounters {
  uint64_t operations = 0;
  uint64_t failures = 0;
  uint64_t polls = 0;
  uint64_t ranks_lost = 0;      ///< Peers known to be lost.
  uint64_t suspects = 0;        ///< Suspect events so far.
  uint64_t named_messages = 0;  ///< Announcements and decisions of named operations sent.
};

/// An operation has made no progress for kSuspectAfter, waiting for one rank all the time. That
/// ends nothing: the rank may be late.
struct Suspect {
  int32_t rank = -1;
  Time since;  ///< The wait for it began.
};

/// Externally synchronized: one thread at a time (the holder of the baton), any thread over time.
class Engine final {
 public:
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  ~Engine();

  [[nodiscard]] int32_t rank() const { return options_.rank; }
  [[nodiscard]] int32_t size() const { return options_.size; }
  [[nodiscard]] Group& world() { return *groups_.front(); }
  [[nodiscard]] const std::shared_ptr<collective::Segment>& segment() const {
    return options_.segment;
  }
  [[nodiscard]] obs::FlightRecorder& recorder() { return *recorder_; }

  /// Makes a group of world ranks, in the given rank order; null if this rank is no member. Every
  /// rank of the world makes the same calls in the same order. Does not communicate.
  Result<Group*> create_group(const std::vector<int32_t>& members);
  /// Every rank sets the same, after the same operations.
  void set_selection(collective::SelectionTable table);
  /// FAILED_PRECONDITION while operations are in flight. The board section is freed once all
  /// members have left the group or are gone.
  Status destroy_group(Group& group);

  /// Queues the work's operations, in the order of these calls or, if the work is named, by their
  /// names; invalid ones and those of a dead group make it done at once.
  void submit(Group& group, const std::shared_ptr<WorkState>& work, Time now);
  /// One small collective that starts and, mostly, ends at once: no flight, no memory. Sets `quick`
  /// unless it has to go through submit(): nothing may be in flight on the group, its board must
  /// have room, and all must know that it fits into the board's lines and slots. Its line is out
  /// then.
  class Quick;
  bool begin_quick(Group& group, const collective::OpRequest& request, std::optional<Quick>& quick);
  /// True once every member is there: the result is made and `status` set.
  bool finish_quick(Quick& quick, Status& status);
  /// Its peers are late: it goes on as `work`, whose only request is the same.
  void slow_down(Quick& quick, const std::shared_ptr<WorkState>& work, Time now);

  /// Moves everything; true if anything moved. Deadlines are checked against `now`.
  bool poll(Time now);
  /// No operation waits or is in flight, and nothing is left to send.
  [[nodiscard]] bool quiet() const;
  /// The same, and nobody may ask this rank for what it knows (closing rounds).
  [[nodiscard]] bool idle() const;
  /// The earliest time at which poll() has something to do by itself: a deadline, mostly.
  [[nodiscard]] Time next_deadline() const;
  /// True while operations of this engine use streams, so that their descriptors are worth
  /// watching.
  [[nodiscard]] bool uses_streams() const { return message_flights_ > 0 || unsent(); }
  /// Something could not be sent yet.
  [[nodiscard]] bool unsent() const;

  /// A rank is gone: every group that has it as a member fails. `how` for the message.
  void peer_lost(int32_t rank, const std::string& how);
  /// A rank's process or host is gone. Takes in all it has left behind first; if it had said
  /// goodbye, only operations that still wait for it fail, else it is lost.
  void peer_ended(int32_t rank, const std::string& how);
  /// This rank cannot go on: every group fails, for its other members too.
  void fail_all(const Status& cause);
  /// Sets the sleeping word as deep as the operations in flight need, or clears it.
  void set_sleeping(bool asleep);
  /// In a forked child: closes every descriptor without a word to the peers. Nothing else may be
  /// called after it.
  void close_descriptors();
  /// Says goodbye to the peers and fails what is in flight, and all that is submitted later, with
  /// CANCELLED.
  void close();

  [[nodiscard]] const EngineCounters& counters() const { return counters_; }
  [[nodiscard]] transport::EndpointCounters message_counters() const;
  /// Suspects since the last call, each rank once.
  [[nodiscard]] std::vector<Suspect> take_suspects() { return std::exchange(suspects_, {}); }
  [[nodiscard]] transport::Endpoint* endpoint(int32_t rank) {
    return endpoints_[static_cast<size_t>(rank)].get();
  }

 private:
  /// Every group's lane begins its work at once, where the engine polls.
  class InlineLane final : public graph::Lane {
   public:
    void start(Time /*now*/, const graph::Work& work) override { work.launch(work.firing); }
  };

  explicit Engine(EngineOptions options);
  Status open_world();
  Result<Group*> open_group(const std::vector<int32_t>& members, uint32_t lane);
  Status open_board(Group& group);

  std::unique_ptr<Flight> make_flight(Group& group, const std::shared_ptr<WorkState>& work,
                                      const collective::OpRequest& request, Time now) const;
  void enqueue(std::unique_ptr<Flight> flight);
  [[nodiscard]] static obs::OpRecord record_of(const Group& group,
                                               const collective::OpRequest& request, uint64_t op);
  void submit_one(Group& group, const std::shared_ptr<WorkState>& work, size_t index, Time now);
  Status refusal(Group& group, const collective::OpRequest& request);
  [[nodiscard]] Time deadline_of(const collective::OpRequest& request, Time now) const;
  void begin(Group& group, const std::shared_ptr<WorkState>& work, size_t index, Time now);
  [[nodiscard]] bool uses_messages(const Flight& flight) const;
  void launch(Flight& flight, Time now);
  bool poll_group(Group& group);
  bool poll_flight(Flight& flight, bool oldest);
  void conclude(Flight& flight, const Status& outcome);
  void end(Flight& flight, const Status& status);
  void sweep(Group& group);
  void check_deadlines(Time now);
  void expire(Flight& flight, Time now);
  void suspect(Flight& flight, Time now);
  [[nodiscard]] bool tells(const Flight& flight) const;
  void tell_waiting(Flight& flight);
  [[nodiscard]] int32_t follow_waiting(const Group& group, uint64_t op, int32_t first) const;
  void check_departed();

  void fail_group(Group& group, const Status& cause, int32_t culprit);
  [[nodiscard]] Status describe_failure(const Flight& flight, const Status& cause) const;
  [[nodiscard]] Status describe_past(const PastOperation& past, const Status& cause) const;
  [[nodiscard]] std::string last_message_of(const Group& group, int32_t from) const;
  void tell_group(const Group& group, wire::ControlKind kind, uint64_t op, const Status& status,
                  int32_t culprit);
  void on_control(int32_t from, const wire::Control& control);
  void cancel_operation(Group& group, int32_t from, uint64_t op, const Status& cause);
  void judge_strays();
  void judge(int32_t from, Group& group, uint64_t op, const SignatureBits& signature);
  [[nodiscard]] static Status disagreement(int32_t one, const SignatureBits& signature,
                                           int32_t other, const SignatureBits& others);
  [[nodiscard]] Group* group_of_lane(uint32_t lane);
  [[nodiscard]] bool of_a_later_group(uint32_t lane) const;
  void keep_early(int32_t from, const wire::Control& control);
  void hear_early(Group& group);
  bool poll_endpoints(bool everyone);
  bool poll_groups_of(int32_t member);
  void close_quiet_boards();

  // engine_commit.cc
  [[nodiscard]] bool commits(const Group& group) const;
  [[nodiscard]] int32_t decider_of(const Group& group) const;
  [[nodiscard]] int32_t waiting_for(const Flight& flight) const;
  void vote(Flight& flight);
  void count_vote(Group& group, int32_t from, uint64_t op, const SignatureBits& signature);
  void hear_closing(int32_t from, Group& group, const wire::Control& control);
  void settle(Group& group);
  void report(Group& group, int32_t decider);
  void tell_verdict(const Group& group, int32_t to);
  void tell_commits(const Group& group, int32_t to);
  void end_voted(Group& group, const std::string& doubt);
  [[nodiscard]] bool all_reported(const Group& group) const;
  [[nodiscard]] bool is_gone(int32_t member) const;
  [[nodiscard]] int32_t gone_from(const Group& group) const;
  void settle_all(int32_t member);
  void tell_all_commits();
  void check_settling(Time now);
  void retire(std::unique_ptr<Group> group);
  [[nodiscard]] Group* retired_of_lane(uint32_t lane) const;

  // engine_named.cc
  void submit_named(Group& group, const std::shared_ptr<WorkState>& work, size_t index, Time now);
  [[nodiscard]] Status named_refusal(Group& group, const collective::OpRequest& request);
  NamedChannel& open_channel(Group& group);
  Result<Group*> open_named_lane(Group& group, NamedLane which);
  Group* named_lane_of(uint32_t lane);
  [[nodiscard]] static bool in_use(const Group& group);
  [[nodiscard]] bool named_busy() const;
  bool poll_named(Group& group, Time now);
  bool carry_out(Group& group, Time now);
  void run_step(Group& group, const NamedStep& step, Time now);
  void pass_over(Group& lane);
  bool tell(int32_t member, const wire::Control& control);
  void tell_members(const Group& group, const wire::Control& control);
  void hear_named(int32_t from, const wire::Control& control);
  void fail_named(Group& group, const Status& cause, int32_t culprit);
  void check_departed_named(Group& group);

  EngineOptions options_;
  std::unique_ptr<obs::FlightRecorder> recorder_;
  InlineLane inline_lane_;
  std::unique_ptr<graph::Executor> executor_;
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints_;  ///< By rank; null for the own.
  std::vector<std::string> lost_;  ///< By rank: how it was lost, or empty.
  std::vector<bool> departed_;     ///< By rank: said goodbye.
  bool any_departed_ = false;
  std::vector<int> descriptors_;                ///< For close_descriptors().
  std::vector<std::unique_ptr<Group>> groups_;  ///< The world first.
  /// Destroyed groups with closing rounds, the last ones: what they know may still be asked for.
  std::vector<std::unique_ptr<Group>> retired_;
  bool closed_ = false;
  std::vector<std::unique_ptr<collective::Board>>
      quiet_boards_;  ///< Of destroyed groups, until all members have left or are gone.
  struct Stray {
    int32_t from;
    transport::MessageKey key;
    SignatureBits signature;
  };
  std::vector<Stray> strays_;  ///< Heard of during this look at the endpoints.
  /// What was said of groups that are still to be made here, by lane.
  struct Early {
    std::vector<std::pair<int32_t, wire::Control>> said;
    int32_t too_much_from = -1;  ///< A rank that said more than is kept.
  };
  std::map<uint32_t, Early> early_;
  uint32_t next_lane_ = 0;
  uint32_t idle_polls_ = 0;  ///< In a row.
  bool skipped_ = false;     ///< The last poll did not look at the streams: it had launched.
  static constexpr int32_t kNobody = -1, kSeveral = -2;
  int32_t awaited_ = kNobody;   ///< The rank that all operations in flight wait for.
  size_t flights_ = 0;          ///< Submitted and not over.
  size_t message_flights_ = 0;  ///< Of these, started and using endpoints.
  Time now_;
  EngineCounters counters_;
  std::vector<Suspect> suspects_;
};

/// A small collective between begin_quick() and its end. The group and the request are borrowed.
class Engine::Quick {
 public:
  Quick(Group& of, const collective::OpRequest& request)
      : group_(&of), exchange_(*of.board, of.next_op, request) {}

 private:
  friend class Engine;
  Group* group_;
  collective::BoardExchange exchange_;
  obs::FlightRecorder::Handle record_ = 0;
};

}  // namespace corro::runtime
