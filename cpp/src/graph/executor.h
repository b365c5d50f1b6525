// Executor: fires the services of a plan, and single operations, on lanes. One rule, no thread, no
// clock.
//
//   CORRO_ASSIGN(auto executor, Executor::create(plan, {&gpu, &communicator}));
//   executor->run_until(8);
//   while (!executor->reached()) { executor->poll(now); ... executor->complete(ticket); }
//
// Rule: inputs readable, outputs have a free slot, the lane has room and it is the service's turn
// -> start it. When it is complete: outputs become readable, inputs free. Nothing else triggers
// anything. A one-shot is the same thing without channels: it starts when its lane has room and it
// is its turn.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/channel.h"
#include "graph/lane.h"
#include "graph/plan.h"
#include "graph/service.h"

namespace corro::graph {

/// A single operation for a lane. Captures of up to two pointers do not allocate.
struct OneShot {
  std::string_view name;  ///< For messages; the text stays valid until on_done has returned.
  int32_t priority = 0;   ///< Less goes first (LaneOrder::kPriority).
  uint32_t weight = 1;    ///< So much of its lane's depth it takes, and at most all of it.
  Launch launch = {};
  /// Called once: with the status given to complete(), or to cancel_pending(). May submit; may not
  /// poll.
  std::function<void(const Status&)> on_done = {};
};

/// Hears of the firings of services, not of one-shots.
class FiringObserver {
 public:
  FiringObserver() = default;
  FiringObserver(const FiringObserver&) = delete;
  FiringObserver& operator=(const FiringObserver&) = delete;
  virtual ~FiringObserver() = default;

  /// The lane is told next.
  virtual void on_start(ServiceId service, Generation generation) = 0;
  virtual void on_end(ServiceId service, const Status& status) = 0;
};

struct ExecutorOptions {
  PlanLimits limits = {};
  /// Gives the memory of one slot; called slots() times for each channel with slot_bytes > 0 while
  /// creating. Without it slots have no memory (virtual time).
  std::function<Result<std::span<std::byte>>(ChannelId channel, uint32_t slot)> allocate = {};
  FiringObserver* observer = nullptr;  ///< Null: nobody. Outlives the executor.
};

/// Loop-confined. In steady state neither a firing nor a one-shot allocates.
class Executor final {
 public:
  /// Fails as check() does, or with INVALID_ARGUMENT when lanes and plan.lanes differ in number, or
  /// for a plan of several ranks.
  /// Nothing fires before run_until(). The lanes outlive the executor.
  [[nodiscard]] static Result<std::unique_ptr<Executor>> create(
      Plan plan, const std::vector<Lane*>& lanes, const ExecutorOptions& options = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor() = default;

  /// Lets every service fire for generations below `micro`, one of several generations if all of them
  /// are; never takes back what was allowed before. What it adds is a stretch: a lane with lags ends one before it begins the next, so that
  /// its order follows from the calls alone, not from when they come.
  void run_until(uint32_t micro);
  /// Starts everything the rule allows; true if anything started. Completions inside a start count
  /// at once.
  bool poll(Time now);
  /// Ends a firing. A failed service stops the plan (see stop); a failed one-shot only tells its
  /// on_done. Unknown and late tickets are ignored.
  void complete(Ticket ticket, const Status& status = {});

  /// Queues a one-shot; poll() starts it. FAILED_PRECONDITION for a lane in agreed order that
  /// serves the plan: between the two there is no agreed order, so one-shots need a communicator of
  /// their own.
  [[nodiscard]] Result<Ticket> submit(LaneId lane, OneShot one_shot);
  /// Begins a one-shot that the caller runs itself: a ticket from the lane's own counter if nothing
  /// waits or runs there, else nothing. No task, so no launch, no on_done and no memory; complete()
  /// ends it. Not for a lane in agreed order that serves the plan.
  [[nodiscard]] std::optional<Ticket> try_begin(LaneId lane);
  /// Ends every one-shot of the lane that has not started, in order, with `status`; returns how
  /// many.
  size_t cancel_pending(LaneId lane, const Status& status);

  /// Adds a lane for one-shots (a group made while running).
  [[nodiscard]] LaneId add_lane(LaneSpec spec, Lane& lane);
  /// Forgets a lane without services and without one-shots, else FAILED_PRECONDITION; its id may be
  /// given out again.
  [[nodiscard]] Status remove_lane(LaneId lane);

  /// Stops the plan: no service starts any more, firings in flight still have to complete. The
  /// first reason stays.
  void stop(const Status& reason);
  /// Takes every slot back and sets all services to fire `first` next; run_until() starts again
  /// from there. Slots that are filled at the start carry `first` and what follows; their contents
  /// are the caller's to restore. FAILED_PRECONDITION, naming one, while a service is in flight;
  /// INVALID_ARGUMENT for a generation that begins no step (step_of()).
  /// One-shots go on untouched.
  [[nodiscard]] Status restart(Generation first);

  /// Holds back every service that has not started, until leave(), and returns the firing of the
  /// agreed lane that would have been next. For a plan with one lane in agreed order, without lags,
  /// whose services all fire in every generation:
  /// there the firings of all ranks are the same ones, so ranks that freeze can compare how far they
  /// are.
  [[nodiscard]] Place freeze();
  /// Ends the plan before `cut`, the first firing in plan order that will not be: services below
  /// cut.service fire their last time for cut.generation, the others for the one before. reached()
  /// is true when all that is complete; what another lane has started beyond stays in flight and
  /// counts no more. FAILED_PRECONDITION if the agreed lane has started more; the plan stays frozen
  /// then.
  [[nodiscard]] Status leave(Place cut);

  /// OK, or why the plan stopped.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Every service has completed all generations allowed by run_until(), or left by leave().
  [[nodiscard]] bool reached() const { return unfinished_ == 0; }
  /// The least generation that a service of the plan has not completed, of those that begin a step;
  /// run_until()'s for a plan without services. O(services).
  [[nodiscard]] uint32_t completed() const;
  /// The least generation that this service has not completed.
  [[nodiscard]] uint32_t completed_by(ServiceId service) const {
    return services_[service].done * services_[service].every;
  }
  /// Nothing is in flight and no one-shot waits.
  [[nodiscard]] bool idle() const { return in_flight_ == 0 && waiting_ == 0; }
  /// How many one-shots of the lane wait or are in flight.
  [[nodiscard]] size_t one_shots(LaneId lane) const { return lanes_[lane].one_shots; }
  /// The generation the service fires next.
  [[nodiscard]] Generation next_generation(ServiceId service) const;
  /// One line per service and lane that waits, and for what. For stall reports.
  [[nodiscard]] std::string describe_waiting() const;

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] Channel& channel(ChannelId id) { return channels_[id]; }

 private:
  enum class TaskState : uint8_t { kIdle, kQueued, kRunning };
  static constexpr uint32_t kNone = 0xffffffffU;
  /// In Ticket::task: try_begin() has given it, and the other bits are the lane's number.
  static constexpr uint32_t kOfLane = 0x80000000U;

  /// A service (tasks 0 to n-1, for ever) or a one-shot (the rest, recycled).
  struct Task {
    TaskState state = TaskState::kIdle;
    bool recycle_after_start = false;
    LaneId lane = 0;
    int32_t priority = 0;
    uint32_t weight = 1;  ///< Of a service always.
    uint32_t sequence = 0;
    uint32_t next = kNone;  ///< One-shots: the next in the lane's queue or the free list.
    std::string_view name;
    Launch launch;
    std::function<void(const Status&)> on_done;
  };
  struct InputEnd {
    ChannelId channel;
    uint32_t consumer;
  };
  struct Service {
    std::vector<InputEnd> inputs;
    std::vector<ChannelId> outputs;
    std::vector<Slot*> input_slots;
    std::vector<Slot*> output_slots;
    uint32_t every = 1;
    uint32_t started = 0;  ///< Firings, as if it had fired for all generations before the first.
    uint32_t done = 0;

    /// The last generation of this firing of it.
    [[nodiscard]] uint32_t micro(uint32_t firing) const { return (firing + 1) * every - 1; }
  };
  struct LaneState {
    LaneSpec spec;
    Lane* lane = nullptr;
    uint32_t in_flight = 0;  ///< Their weights.
    size_t one_shots = 0;
    uint32_t begun = 0;      ///< One-shots that try_begin() has begun so far.
    bool has_begun = false;  ///< The last of them is in flight.
    bool dirty = false;
    std::vector<ServiceId> services;  ///< Agreed: plan order. Priority: by priority.
    size_t turn = 0;
    uint64_t round = 0;     ///< Counts the turns of all its services.
    uint64_t end = 0;       ///< With lags: of the stretch that it is in,
    uint32_t most_lag = 0;  ///< which takes so many rounds more than it has generations.
    uint32_t first_waiting = kNone;
    uint32_t last_waiting = kNone;
  };

  Executor(Plan plan, FiringObserver* observer) : plan_(std::move(plan)), observer_(observer) {}
  Status build(const std::vector<Lane*>& lanes, const ExecutorOptions& options);
  Status build_channels(const ExecutorOptions& options);
  void build_services();

  /// The firing of the service that may not start any more.
  [[nodiscard]] uint32_t end_of(ServiceId id) const {
    return (end_ + (id < end_service_ ? 1 : 0)) / services_[id].every;
  }
  void count_unfinished();
  void add_stretch();
  /// Of a lane with lags: passes over turns for generations that are not of its stretch. Where
  /// nothing is left of the last stretch it stays behind it.
  void find_turn(LaneState& lane) const;
  [[nodiscard]] bool begin_stretch(LaneState& lane) const;
  static void end_turn(LaneState& lane);
  [[nodiscard]] const LaneState& agreed_lane() const;
  [[nodiscard]] bool ready(ServiceId id) const;
  [[nodiscard]] uint32_t pick(const LaneState& lane) const;
  bool fire_lane(LaneId id, Time now);
  void start_service(ServiceId id, Time now);
  void start_one_shot(uint32_t task, Time now);
  void begin(uint32_t task, Duration duration, const Firing& firing, Time now);
  void finish_service(ServiceId id, const Status& status);
  void finish_one_shot(uint32_t task, const Status& status);
  void finish_begun(Ticket ticket);
  void enqueue(LaneState& lane, uint32_t task);
  uint32_t take_free_task();
  void recycle(uint32_t task);
  void mark_dirty(LaneId id);
  void mark_all_dirty();
  [[nodiscard]] std::string waits_for(ServiceId id) const;

  Plan plan_;
  FiringObserver* const observer_;
  std::vector<Channel> channels_;
  std::vector<ServiceId> producers_;               ///< By channel.
  std::vector<std::vector<ServiceId>> consumers_;  ///< By channel, by consumer number.
  std::vector<Service> services_;
  std::deque<Task> tasks_;  ///< A deque: a launch that runs may submit, and must stay where it is.
  std::deque<LaneState> lanes_;  ///< A deque: a launch may add a lane.
  std::vector<LaneId> dirty_;    ///< A ring: each lane is in it at most once.
  size_t dirty_first_ = 0;
  size_t dirty_count_ = 0;
  uint32_t free_task_ = kNone;
  uint32_t starting_ = kNone;  ///< The task whose start() is on the stack.
  uint32_t epoch_ = 0;
  uint32_t step_ = 1;                ///< Generations.
  uint32_t end_ = 0;                 ///< No service fires this generation,
  ServiceId end_service_ = 0;        ///< but those below this one.
  std::vector<uint32_t> stretches_;  ///< Their ends, ascending, of those not yet completed.
  bool frozen_ = false;
  size_t unfinished_ = 0;
  size_t in_flight_ = 0;
  size_t waiting_ = 0;
  size_t services_in_flight_ = 0;
  Status status_;
};

}  // namespace corro::graph
