#include <algorithm>
#include <array>
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
  TimedSimulation(std::span<const Schedule> schedules, double element_bytes,
                  const LinkModels& links, const Topology& topology)
      : element_bytes_(element_bytes),
        links_(links),
        topology_(topology),
        marks_(schedules.size()),
        messages_(schedules.size()),
        ports_(schedules.size()),
        host_ports_(static_cast<size_t>(topology.hosts())) {
    ranks_.reserve(schedules.size());
    for (const Schedule& schedule : schedules) ranks_.emplace_back(schedule);
  }

  double run() {
    for (size_t r = 0; r < ranks_.size(); ++r) start_open_steps(r);
    look_at_marks();
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
      look_at_marks();
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
    size_t sender = 0;
    uint32_t tag = 0;
    double bytes = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  /// When the two directions of a port are free again.
  struct Port {
    double out_free = 0, in_free = 0;
  };
  static constexpr size_t kNotWaited = SIZE_MAX;

  static uint64_t message_id(size_t sender, uint32_t tag) {
    return static_cast<uint64_t>(sender) << 32U | tag;
  }

  [[nodiscard]] bool same_host(size_t a, size_t b) const {
    return topology_.host_of(static_cast<int32_t>(a)) == topology_.host_of(static_cast<int32_t>(b));
  }
  [[nodiscard]] const LinkModel& link_of(size_t a, size_t b) const {
    return same_host(a, b) ? links_.same_host : links_.other_host;
  }
  /// The port of `rank` on the way between it and `other`.
  Port& port_of(size_t rank, size_t other) {
    if (same_host(rank, other)) return ports_[rank];
    return host_ports_[static_cast<size_t>(topology_.host_of(static_cast<int32_t>(rank)))];
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
      const auto to = static_cast<size_t>(step.peer);
      const LinkModel& link = link_of(r, to);
      Port& port = port_of(r, to);
      const double bytes = static_cast<double>(step.from.count) * element_bytes_;
      const double leaves = std::max(now_, port.out_free) + link.overhead_us;
      port.out_free = leaves + bytes * link.us_per_byte;
      push({port.out_free, 0, EventKind::kStepDone, r, i});
      push({leaves + link.latency_us, 0, EventKind::kReachesPort, to, 0, r, step.tag, bytes});
    } else if (step.kind == StepKind::kRecv) {
      const uint64_t id = message_id(static_cast<size_t>(step.peer), step.tag);
      const auto [place, is_new] = messages_[r].try_emplace(id, i);
      if (!is_new) push({now_, 0, EventKind::kStepDone, r, i});
    } else if (step.kind == StepKind::kMark || step.kind == StepKind::kAwait) {
      waiting_.emplace_back(r, i);
    } else {
      push({now_, 0, EventKind::kStepDone, r, i});
    }
  }

  /// Completes what marks allow, in no time; each may allow more.
  void look_at_marks() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < waiting_.size();) {
        const auto [r, i] = waiting_[w];
        if (!reached(r, ranks_[r].step(i))) {
          ++w;
          continue;
        }
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(w));
        complete(r, i);
        moved = true;
      }
    }
  }
  bool reached(size_t r, const Step& step) {
    const auto mark = static_cast<size_t>(step.mark);
    if (step.kind == StepKind::kAwait)
      return marks_[static_cast<size_t>(step.peer)][mark] >= step.tag;
    if (marks_[r][mark] + 1 != step.tag) return false;
    marks_[r][mark] = step.tag;
    return true;
  }

  void enter(const Event& event) {
    Port& port = port_of(event.rank, event.sender);
    port.in_free =
        std::max(now_, port.in_free) + event.bytes * link_of(event.rank, event.sender).us_per_byte;
    push({port.in_free, 0, EventKind::kReceived, event.rank, 0, event.sender, event.tag});
  }

  void received(const Event& event) {
    const uint64_t id = message_id(event.sender, event.tag);
    const auto [place, is_new] = messages_[event.rank].try_emplace(id, kNotWaited);
    if (!is_new) complete(event.rank, place->second);
  }

  void complete(size_t r, size_t i) {
    ranks_[r].complete(i);
    start_open_steps(r);
  }

  const double element_bytes_;
  const LinkModels links_;
  const Topology topology_;
  std::vector<SimulatedStrands> ranks_;
  std::vector<std::array<uint32_t, kMarkCount>> marks_;  ///< By rank: strands told of.
  std::vector<std::pair<size_t, size_t>> waiting_;       ///< Rank and step of marks and awaits.
  /// By rank: messages that are here, with the receive that waits for them, or kNotWaited.
  std::vector<std::unordered_map<uint64_t, size_t>> messages_;
  std::vector<Port> ports_;       ///< Of ranks.
  std::vector<Port> host_ports_;  ///< Of hosts.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_sequence_ = 0;
  double now_ = 0;
};

}  // namespace

double simulated_time_us(std::span<const Schedule> schedules, uint64_t element_bytes,
                         const LinkModels& links, const Topology* topology) {
  const Topology alone = Topology::one_host(static_cast<int32_t>(schedules.size()));
  return TimedSimulation(schedules, static_cast<double>(element_bytes), links,
                         topology == nullptr ? alone : *topology)
      .run();
}

}  // namespace corro::collective
