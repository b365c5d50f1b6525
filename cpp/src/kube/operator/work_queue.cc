#include "kube/operator/work_queue.h"

#include <algorithm>

namespace corro::kube {
namespace {

/// Without chance in it: two jobs that fail at once may well be tried at once.
Duration delay_after(uint32_t failures) {
  constexpr Duration kFirst = std::chrono::milliseconds(50);
  constexpr Duration kMost = std::chrono::seconds(30);
  constexpr uint32_t kMostDoublings = 10;
  return std::min(kMost, kFirst * (1U << std::min(failures, kMostDoublings)));
}

}  // namespace

void WorkQueue::make_due(State& state, const std::string& key, corro::Time due) {
  Entry& entry = state.entries[key];
  if (entry.due && *entry.due <= due) return;
  if (!entry.in_work && entry.due) state.waiting.erase({*entry.due, key});
  entry.due = due;
  if (!entry.in_work) state.waiting.insert({due, key});
}

void WorkQueue::add_after(const std::string& key, Duration delay) {
  make_due(*state_.lock(), key, now_() + delay);
  state_.notify_all();
}

std::optional<WorkQueue::Work> WorkQueue::take_due(State& state) const {
  const corro::Time now = now_();
  if (state.waiting.empty() || state.waiting.begin()->first > now) return {};
  const auto [due, key] = *state.waiting.begin();
  state.waiting.erase(state.waiting.begin());
  Entry& entry = state.entries[key];
  entry.due.reset();
  entry.in_work = true;
  return Work{key, now - due};
}

std::optional<WorkQueue::Work> WorkQueue::take() {
  auto state = state_.lock();
  while (!state->is_closed) {
    if (std::optional<Work> work = take_due(*state)) return work;
    const Duration rest = state->waiting.empty() ? Duration(std::chrono::hours(1))
                                                 : state->waiting.begin()->first - now_();
    state.wait_for(rest);
  }
  return {};
}

std::optional<WorkQueue::Work> WorkQueue::try_take() {
  auto state = state_.lock();
  return state->is_closed ? std::nullopt : take_due(*state);
}

void WorkQueue::end(State& state, const std::string& key) {
  Entry& entry = state.entries[key];
  entry.in_work = false;
  if (entry.due) {
    state.waiting.insert({*entry.due, key});
    state_.notify_all();
  } else if (entry.failures == 0) {
    state.entries.erase(key);
  }
}

void WorkQueue::done(const std::string& key) {
  auto state = state_.lock();
  state->entries[key].failures = 0;
  end(*state, key);
}

void WorkQueue::failed(const std::string& key) {
  auto state = state_.lock();
  Entry& entry = state->entries[key];
  make_due(*state, key, now_() + delay_after(entry.failures++));
  end(*state, key);
}

void WorkQueue::close() {
  state_.lock()->is_closed = true;
  state_.notify_all();
}

WorkQueue::Backlog WorkQueue::backlog() const {
  auto state = state_.lock();
  const corro::Time now = now_();
  Backlog backlog;
  for (const auto& [due, key] : state->waiting) {
    if (due > now) break;
    if (backlog.due++ == 0) backlog.oldest = now - due;
  }
  return backlog;
}

}  // namespace corro::kube
