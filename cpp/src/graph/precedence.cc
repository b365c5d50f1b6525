#include "graph/precedence.h"

#include "graph/ends.h"

namespace corro::graph {
namespace {

/// Rounds down.
int64_t divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

class Unrolling {
 public:
  explicit Unrolling(const Plan& plan) : plan_(plan), step_(step_of(plan)) {
    for (ServiceId id = 0; id < plan.services.size(); ++id) {
      first_.push_back(found_.services.size());
      found_.services.insert(found_.services.end(), static_cast<size_t>(firings(id)), id);
    }
  }

  Precedence run() {
    const std::vector<ChannelEnds> ends = ends_of(plan_);
    for (ServiceId id = 0; id < plan_.services.size(); ++id) {
      follow(id, id, duration(id), 1);  // A service never overlaps itself.
      for (const ChannelId input : plan_.services[id].inputs) {
        add_channel(plan_.channels[input], ends[input].producers.front(), id);
      }
    }
    add_lanes();
    return std::move(found_);
  }

 private:
  [[nodiscard]] int64_t firings(ServiceId id) const { return step_ / plan_.services[id].every; }
  [[nodiscard]] int64_t duration(ServiceId id) const { return plan_.services[id].duration.count(); }

  /// Firing `later` of a step of `to` waits for firing `earlier` of `from`, counted from the same
  /// step's first.
  void wait(ServiceId to, int64_t later, ServiceId from, int64_t earlier, int64_t time) {
    const int64_t steps = divide(earlier, firings(from));
    const int64_t at = earlier - steps * firings(from);
    found_.edges.push_back({first_[from] + static_cast<size_t>(at),
                            first_[to] + static_cast<size_t>(later), time, -steps});
  }

  /// Both fire equally often, `to` so many firings behind.
  void follow(ServiceId from, ServiceId to, int64_t time, int64_t behind) {
    for (int64_t k = 0; k < firings(to); ++k) wait(to, k, from, k - behind, time);
  }

  void add_channel(const ChannelSpec& channel, ServiceId producer, ServiceId consumer) {
    const Pace pace = pace_of(plan_, producer, consumer);
    for (int64_t k = 0; k < firings(consumer); ++k) {
      const int64_t last = (k + 1) * pace.takes - 1;
      wait(consumer, k, producer, divide(last, pace.reads) - channel.initial, duration(producer));
    }
    for (int64_t k = 0; k < firings(producer); ++k) {
      const int64_t freed = k + channel.initial - channel.slots;
      const int64_t last = (freed + 1) * pace.reads - 1;
      wait(producer, k, consumer, divide(last, pace.takes), duration(consumer));
    }
  }

  void add_lanes() {
    std::vector<std::vector<ServiceId>> members(plan_.lanes.size());
    for (ServiceId id = 0; id < plan_.services.size(); ++id)
      members[plan_.services[id].lane].push_back(id);
    for (LaneId lane = 0; lane < plan_.lanes.size(); ++lane) {
      if (plan_.lanes[lane].order == LaneOrder::kAgreed) add_turns(lane, members[lane]);
    }
  }

  void add_turns(LaneId lane, const std::vector<ServiceId>& turn) {
    for (size_t i = 0; i < turn.size(); ++i) {
      const bool last = i + 1 == turn.size();
      const ServiceId next = last ? turn.front() : turn[i + 1];
      const int64_t behind =
          int64_t{plan_.services[turn[i]].lag} - int64_t{plan_.services[next].lag};
      follow(turn[i], next, plan_.lanes[lane].depth == 1 ? duration(turn[i]) : 0,
             behind + (last ? 1 : 0));
    }
  }

  const Plan& plan_;
  const int64_t step_;
  std::vector<size_t> first_;  ///< By service: the node of its first firing.
  Precedence found_;
};

}  // namespace

Precedence precedence_of(const Plan& plan) { return Unrolling(plan).run(); }

}  // namespace corro::graph
