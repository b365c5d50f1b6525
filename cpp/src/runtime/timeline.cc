#include "runtime/timeline.h"

#include <algorithm>
#include <utility>

#include "base/own_thread.h"

namespace corro::runtime {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(20);
constexpr Duration kLongestStop = std::chrono::seconds(1);

}  // namespace

void Timeline::set(State state) {
  *state_.lock() = state;
  state_.notify_all();
}

Status Timeline::start(const std::string& path, obs::TimelineLogOptions options) {
  {
    auto state = state_.lock();
    if (*state != State::kOff)
      return {Code::kFailedPrecondition, "a timeline is written already: stop it first"};
    *state = State::kBusy;
  }
  if (Status opened = open(path); !opened.ok()) {
    set(State::kOff);
    return opened;
  }
  call_([&](Engine& engine) { engine.timeline().start(engine.world().facts(), options); });
  thread_ = start_own_thread("corro-timeline", [this] { run(); });
  set(State::kOn);
  return {};
}

Status Timeline::open(const std::string& path) {
  bool writes = false;
  call_([&](Engine& engine) {
    const GroupFacts& world = engine.world().facts();
    writes = world.rank == 0;
    told_error_.assign(world.members.size(), 0);
    told_dropped_.assign(world.members.size(), 0);
  });
  text_ = {};
  failure_ = {};
  file_.reset();
  if (writes) {
    CORRO_ASSIGN(file_, TimelineFile::create(path));
  }
  return {};
}

Status Timeline::stop() {
  {
    auto state = state_.lock();
    while (*state == State::kBusy || *state == State::kStopping) (void)state.wait_for(kPause);
    if (*state == State::kOff) return {};
    *state = State::kStopping;
  }
  state_.notify_all();
  thread_.join();
  Status failure = std::exchange(failure_, {});
  file_.reset();
  set(State::kOff);
  return failure;
}

void Timeline::run() {
  Time until = Time::never();
  while (true) {
    const bool stopping = *state_.lock() == State::kStopping;
    if (stopping) until = std::min(until, monotonic_now() + kLongestStop);
    const bool over = look(stopping);
    if (stopping && (over || monotonic_now() >= until)) break;
    auto state = state_.lock();
    if (stopping || *state != State::kStopping)
      (void)state.wait_for(stopping ? kPause / 10 : kPause);
  }
  if (file_ && failure_.ok() && file_->waits()) failure_ = file_->publish();
}

/// One look; true if nothing more is to come.
bool Timeline::look(bool stopping) {
  std::vector<TimelineBatch> batches;
  bool over = false;
  call_([&](Engine& engine) {
    TimelineExchange& exchange = engine.timeline();
    if (stopping) exchange.stop();
    exchange.move(monotonic_now());
    (void)engine.poll(monotonic_now());
    batches = exchange.take(monotonic_now());
    over = exchange.over();
  });
  if (!file_) return over;
  write(batches);
  if (failure_.ok() && monotonic_now() >= file_->due()) failure_ = file_->publish();
  return over;
}

void Timeline::write(const std::vector<TimelineBatch>& batches) {
  for (const TimelineBatch& batch : batches) {
    const Status read = text_.add(batch.rank, batch.events, batch.offset_ns);
    if (!read.ok() && failure_.ok()) failure_ = read;
    note_losses(batch);
  }
  file_->append(text_.take());
}

/// What is not as it was: how far a rank's clock may be off, and what a rank has dropped.
void Timeline::note_losses(const TimelineBatch& batch) {
  const auto rank = static_cast<size_t>(batch.rank);
  const auto now = static_cast<uint64_t>(monotonic_now().since_start.count());
  if (batch.error_ns > 0 && (told_error_[rank] == 0 || batch.error_ns < told_error_[rank] / 2)) {
    told_error_[rank] = batch.error_ns;
    text_.note(batch.rank, "CLOCK_ERROR_US", now, static_cast<double>(batch.error_ns) / 1e3);
  }
  if (batch.dropped > told_dropped_[rank]) {
    told_dropped_[rank] = batch.dropped;
    text_.note(batch.rank, "DROPPED", now, static_cast<double>(batch.dropped));
  }
}

}  // namespace corro::runtime
