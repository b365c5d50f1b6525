#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "base/check.h"
#include "testing/simulation/simulate.h"
#include "testing/simulation/simulated_strands.h"

namespace corro::collective {
namespace {

/// A discrete-event simulation of ports and messages.
class TimedSimulation {
 public:
  TimedSimulation(std::span<const Schedule> schedules, double element_bytes, const LinkModel& link)
      : element_bytes_(element_bytes), link_(link), ports_(schedules.size()) {
    ranks_.reserve(schedules.size());
    for (const Schedule& schedule : schedules) ranks_.emplace_back(schedule);
  }

  double run() {
    for (size_t r = 0; r < ranks_.size(); ++r) start_open_steps(r);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      switch (event.kind) {
        case EventKind::kStepDone:
          complete(event.rank, event.step);
          break;
        case EventKind::kReachesPort:
          enter(event);
          break;
        case EventKind::kReceived:
          received(event);
          break;
      }
    }
    for (SimulatedStrands& rank : ranks_) CORRO_CHECK(rank.done(), "the schedules deadlock");
    return now_;
  }

 private:
  enum class EventKind : uint8_t { kStepDone, kReachesPort, kReceived };
  struct Event {
    double time;
    uint64_t sequence;  ///< Of equal times, the one decided first.
    EventKind kind;
    size_t rank;  ///< Where it happens: for messages, the receiver.
    size_t step = 0;
    uint64_t message = 0;  ///< Sender and tag.
    double bytes = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  /// When the two directions of a rank's port are free again.
  struct Port {
    double out_free = 0, in_free = 0;
    /// Messages that are here: the receive that waits for it, or kNotWaited.
    std::unordered_map<uint64_t, size_t> messages;
  };
  static constexpr size_t kNotWaited = SIZE_MAX;

  static uint64_t message_id(size_t sender, uint32_t tag) {
    return static_cast<uint64_t>(sender) << 32U | tag;
  }

  void push(Event event) {
    event.sequence = next_sequence_++;
    events_.push(event);
  }

  void start_open_steps(size_t r) {
    while (!ranks_[r].open().empty()) {
      const std::vector<size_t> steps = std::move(ranks_[r].open());
      ranks_[r].open().clear();
      for (const size_t i : steps) start(r, i);
    }
  }

  void start(size_t r, size_t i) {
    const Step& step = ranks_[r].step(i);
    if (step.kind == StepKind::kSend) {
      Port& port = ports_[r];
      const double bytes = static_cast<double>(step.from.count) * element_bytes_;
      const double leaves = std::max(now_, port.out_free) + link_.overhead_us;
      port.out_free = leaves + bytes * link_.us_per_byte;
      push({port.out_free, 0, EventKind::kStepDone, r, i});
      push({leaves + link_.latency_us, 0, EventKind::kReachesPort, static_cast<size_t>(step.peer),
            0, message_id(r, step.tag), bytes});
    } else if (step.kind == StepKind::kRecv) {
      const uint64_t id = message_id(static_cast<size_t>(step.peer), step.tag);
      const auto [place, is_new] = ports_[r].messages.try_emplace(id, i);
      if (!is_new) push({now_, 0, EventKind::kStepDone, r, i});
    } else {
      push({now_, 0, EventKind::kStepDone, r, i});
    }
  }

  void enter(const Event& event) {
    Port& port = ports_[event.rank];
    port.in_free = std::max(now_, port.in_free) + event.bytes * link_.us_per_byte;
    push({port.in_free, 0, EventKind::kReceived, event.rank, 0, event.message});
  }

  void received(const Event& event) {
    const auto [place, is_new] = ports_[event.rank].messages.try_emplace(event.message, kNotWaited);
    if (!is_new) complete(event.rank, place->second);
  }

  void complete(size_t r, size_t i) {
    ranks_[r].complete(i);
    start_open_steps(r);
  }

  const double element_bytes_;
  const LinkModel link_;
  std::vector<SimulatedStrands> ranks_;
  std::vector<Port> ports_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_sequence_ = 0;
  double now_ = 0;
};

}  // namespace

double simulated_time_us(std::span<const Schedule> schedules, uint64_t element_bytes,
                         const LinkModel& link) {
  return TimedSimulation(schedules, static_cast<double>(element_bytes), link).run();
}

}  // namespace corro::collective
