#include "graph/virtual_lanes.h"

#include <algorithm>
#include <utility>

namespace corro::graph {

VirtualLanes::VirtualLanes(const Plan& plan, VirtualOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    lanes_.push_back(std::make_unique<VirtualLane>(*this));
  }
}

std::vector<Lane*> VirtualLanes::lanes() {
  std::vector<Lane*> pointers;
  for (const auto& lane : lanes_) pointers.push_back(lane.get());
  return pointers;
}

Time VirtualLanes::run(Executor& executor) {
  executor.poll(now_);
  while (!running_.empty()) {
    const auto earlier = [](const VirtualFiring& a, const VirtualFiring& b) {
      return a.end < b.end;
    };
    now_ = std::min_element(running_.begin(), running_.end(), earlier)->end;
    const auto later = std::stable_partition(
        running_.begin(), running_.end(), [this](const VirtualFiring& f) { return f.end == now_; });
    std::shuffle(running_.begin(), later, random_);
    const std::vector<VirtualFiring> ended(running_.begin(), later);
    running_.erase(running_.begin(), later);
    for (const VirtualFiring& firing : ended) {
      if (options_.observer) options_.observer(firing);
      executor.complete(firing.ticket, options_.outcome ? options_.outcome(firing) : Status());
    }
    executor.poll(now_);
  }
  return now_;
}

void VirtualLanes::begin(Time now, const Work& work) {
  Duration duration = work.duration;
  if (options_.jitter > 0) {
    std::uniform_real_distribution<double> factor(1 - options_.jitter, 1 + options_.jitter);
    const double ticks = static_cast<double>(duration.count()) * factor(random_);
    duration = Duration(static_cast<Duration::rep>(ticks));
  }
  running_.push_back({work.name, work.firing.generation, work.firing.ticket, now, now + duration});
}

}  // namespace corro::graph
