#include "dashboard/rates.h"

#include <utility>

namespace corro::dashboard {

void Rates::sample(Counters counters, UnixTime now) {
  if (!samples_.empty() && now <= samples_.back().at) samples_.clear();
  samples_.push_back({.at = now, .counters = std::move(counters)});
  while (samples_.size() > 2 && samples_[1].at + kSpan <= now) samples_.pop_front();
}

double Rates::of(const std::string& name) const {
  if (samples_.size() < 2) return 0;
  const Sample& last = samples_.back();
  const auto now = last.counters.find(name);
  if (now == last.counters.end()) return 0;
  for (const Sample& first : samples_) {
    const auto then = first.counters.find(name);
    if (then == first.counters.end()) continue;
    if (now->second <= then->second) return 0;
    const double seconds = std::chrono::duration<double>(last.at - first.at).count();
    return static_cast<double>(now->second - then->second) / seconds;
  }
  return 0;
}

}  // namespace corro::dashboard
