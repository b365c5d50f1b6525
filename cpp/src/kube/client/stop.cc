#include "kube/client/stop.h"

#include <utility>

namespace corro::kube {

void Stop::request() {
  {
    auto state = state_.lock();
    if (std::exchange(state->requested, true)) return;
    for (const auto& wake : state->wakers) wake();
  }
  state_.notify_all();
}

bool Stop::requested() const { return state_.lock()->requested; }

bool Stop::wait_for(Duration duration) const {
  const Time end = monotonic_now() + duration;
  auto state = state_.lock();
  for (Time now = monotonic_now(); !state->requested && now < end; now = monotonic_now()) {
    state.wait_for(end - now);
  }
  return state->requested;
}

Stop::Waker::Waker(const Stop& stop, std::function<void()> wake) : stop_(stop) {
  auto state = stop_.state_.lock();
  at_ = state->wakers.insert(state->wakers.end(), std::move(wake));
  if (state->requested) (*at_)();
}

Stop::Waker::~Waker() { stop_.state_.lock()->wakers.erase(at_); }

}  // namespace corro::kube
