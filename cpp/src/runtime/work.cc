#include "runtime/work.h"

#include <thread>
#include <utility>

#include "io/futex.h"

namespace corro::runtime {
namespace {

/// Before it sleeps a waiter yields so often. On a processor that it shares with the progress
/// thread that one then ends many operations in a row; a sleeper would be woken up by the first of
/// them, and be put in its place.
constexpr int kYields = 64;

}  // namespace

void CompletionQueue::push(uint64_t cookie) {
  state_.lock()->cookies.push_back(cookie);
  state_.notify_all();
}

Result<uint64_t> CompletionQueue::pop(Duration timeout) {
  const Time deadline = monotonic_now() + timeout;
  auto state = state_.lock();
  while (state->cookies.empty()) {
    if (state->closed) return Status(Code::kCancelled, "the queue is closed");
    const Time now = monotonic_now();
    if (now >= deadline) return Status(Code::kDeadlineExceeded, "no work has completed");
    (void)state.wait_for(deadline - now);
  }
  const uint64_t cookie = state->cookies.front();
  state->cookies.pop_front();
  return cookie;
}

void CompletionQueue::close() {
  state_.lock()->closed = true;
  state_.notify_all();
}

bool WorkState::wait(Duration timeout) const {
  if (done()) return true;
  const bool forever = timeout < Duration::zero();
  const Time deadline = forever ? Time::never() : monotonic_now() + timeout;
  for (int i = 0; i < kYields && monotonic_now() < deadline; ++i) {
    std::this_thread::yield();
    if (done()) return true;
  }
  while (true) {
    const uint32_t state = state_.fetch_or(kWaiting, std::memory_order_acq_rel);
    if ((state & kDone) != 0) return true;
    const Duration left_over = forever ? Duration(-1) : deadline - monotonic_now();
    if (!forever && left_over <= Duration::zero()) return false;
    io::futex_wait(state_, state | kWaiting, left_over);
  }
}

void WorkState::notify(std::shared_ptr<CompletionQueue> queue, uint64_t cookie) {
  queue_ = std::move(queue);
  cookie_ = cookie;
  if ((state_.fetch_or(kNotify, std::memory_order_acq_rel) & kDone) != 0) queue_->push(cookie_);
}

void WorkState::finish_one(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
  if (--left > 0) return;
  const uint32_t before = state_.fetch_or(kDone, std::memory_order_acq_rel);
  if ((before & kNotify) != 0) queue_->push(cookie_);
  if ((before & kWaiting) != 0) io::futex_wake_all(state_);
  if (then) std::exchange(then, {})(status_);
}

}  // namespace corro::runtime
