#include "runtime/driver.h"

#include <unistd.h>

#include <map>
#include <thread>

#include "io/futex.h"
#include "runtime/wait_timer.h"

namespace corro::runtime {
namespace {

constexpr Duration kFlushTime = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Driver>> Driver::create(DriverOptions options) {
  auto bells = std::move(options.peer_bells);
  auto driver = std::unique_ptr<Driver>(new Driver(options, std::move(bells)));
  CORRO_TRY(driver->set_up(std::move(options)));
  driver->progress_->start();
  return driver;
}

Status Driver::set_up(DriverOptions options) {
  options.engine.wake = [this](int32_t rank) {
    io::EventFd::ring(peer_bells_[static_cast<size_t>(rank)].get());
  };
  options.engine.poll_soon = [this] { progress_->unpark(); };
  std::map<MemberId, int> streams;
  for (size_t r = 0; r < options.engine.peers.size(); ++r) {
    const EnginePeer& peer = options.engine.peers[r];
    if (peer.stream != nullptr && peer.stream->poll_fd() >= 0)
      streams[static_cast<MemberId>(r)] = peer.stream->poll_fd();
  }
  options.engine.connects = options.connector != nullptr;
  CORRO_ASSIGN(auto engine, Engine::create(std::move(options.engine)));
  CORRO_ASSIGN(watch_, Watch::create({.doorbell = std::move(options.doorbell),
                                      .streams = std::move(streams),
                                      .pids = std::move(options.peer_pids),
                                      .connector = std::move(options.connector),
                                      .liveness = std::move(options.liveness),
                                      .epochs = options.epochs,
                                      .epoch = options.epochs ? options.epochs->epoch() : 0,
                                      .metrics = engine->recorder().metrics()}));
  mover_ = std::make_unique<Mover>(std::move(engine), *watch_, peer_bells_);
  progress_ = std::make_unique<ProgressThread>(*mover_, *watch_, baton_, options.progress_ladder);
  mover_->ask_readable();
  return {};
}

Driver::~Driver() {
  CORRO_CHECK(!abandoned(), "a driver in a forked child is let go, not destroyed");
  if (progress_ != nullptr && progress_->started()) {
    close();
    progress_->stop();
    mover_->take_news();  // Who has dialled meanwhile.
  }
}

void Driver::close() {
  (void)timeline_.stop();
  flush();
  call([this](Engine& engine) {
    mover_->take_news();  // Who has a stream is told goodbye there.
    engine.close();
  });
}

void Driver::serve(std::unique_ptr<collective::ServedLinks> aggregators) {
  call([&](Engine& engine) {
    for (int32_t i = 0; i < aggregators->count(); ++i)
      watch_->add_aggregator(aggregators->endpoint(i).poll_fd());
    engine.serve(std::move(aggregators));
  });
}

/// What was said already gets out first: another rank may wait for it.
void Driver::flush() {
  const Time until = monotonic_now() + kFlushTime;
  bool unsent = true;
  while (unsent && monotonic_now() < until) {
    call([&unsent](Engine& engine) {
      (void)engine.poll(monotonic_now());
      unsent = engine.peers().unsent();
    });
    if (unsent) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Driver::abandon_in_child() {
  abandoned_.store(true, std::memory_order_release);
  for (io::Fd& bell : peer_bells_) bell.reset();
  engine().close_descriptors();
  watch_->abandon_in_child();
}

// -- what callers do ------------------------------------------------------------------------------

/// Releases the baton that somebody has taken.
class Driver::Holder {
 public:
  explicit Holder(ProgressThread& progress) : progress_(progress) {}
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { progress_.release_baton(); }

 private:
  ProgressThread& progress_;
};

void Driver::post(Mover::Task task) {
  mover_->post(std::move(task));
  progress_->unpark();
}

void Driver::submit(Group& group, std::shared_ptr<WorkState> work) {
  mover_->post(group, std::move(work));
  progress_->unpark();
}

/// Nobody has to be woken: who calls a WorkState::then has the baton, and looks at posts after it.
void Driver::submit_next(Group& group, std::shared_ptr<WorkState> work) {
  mover_->post(group, std::move(work));
}

/// Moves the engine until `over` says so, or it would have to sleep. With the baton.
template <typename Over>
void Driver::move_until(const Over& over) {
  Ladder ladder(ladder_);
  while (!over()) {
    if (mover_->move()) {
      ladder.reset();
    } else if (!ladder.climb(engine().uses_streams() ? kStreamPoll : 1)) {
      return;
    }
  }
}

void Driver::try_run(Group& group, const std::shared_ptr<WorkState>& work) {
  try_run(group, work, *work);
}

void Driver::try_run(Group& group, const std::shared_ptr<WorkState>& work, const WorkState& until) {
  if (!baton_.try_take()) return submit(group, work);
  const WaitTimer timer(engine().recorder().steps());
  const Holder holder(*progress_);
  mover_->run_posts();
  mover_->submit(group, work);
  move_until([&until] { return until.done(); });
}

std::shared_ptr<WorkState> Driver::try_run(Group& group, const collective::OpRequest& request,
                                           Status& status) {
  std::shared_ptr<WorkState> rest;
  if (run_now(group, request, status, rest)) return rest;
  rest = std::make_shared<WorkState>(std::vector{request});
  try_run(group, rest);
  return rest;
}

void Driver::run(Group& group, const std::shared_ptr<WorkState>& work) {
  try_run(group, work);
  (void)work->wait(Duration(-1));
}

Status Driver::run(Group& group, const collective::OpRequest& request) {
  Status status;
  const auto rest = try_run(group, request, status);
  if (rest == nullptr) return status;
  (void)rest->wait(Duration(-1));
  return rest->status();
}

/// False if the operation has to be submitted. Else it is over, with `status`, or the progress
/// thread has it as `rest`.
bool Driver::run_now(Group& group, const collective::OpRequest& request, Status& status,
                     std::shared_ptr<WorkState>& rest) {
  if (mover_->has_posts() || !baton_.try_take()) return false;
  const Holder holder(*progress_);
  NowOperation now;
  if (!group.begin_now(request, now)) return false;
  Ladder ladder(ladder_);
  bool over = now.finish(status);
  while (!over && !mover_->has_posts() && ladder.climb()) {
    mover_->move_flights();
    over = now.finish(status);
  }
  if (over) return true;
  try {
    auto work = std::make_shared<WorkState>(std::vector{request});
    engine().become(group, now, work, monotonic_now());
    rest = std::move(work);
  } catch (const std::exception& why) {
    status = mover_->give_up(why);
  }
  return true;
}

Result<PulledFiring> Driver::next(PulledLane& lane, Duration timeout) {
  if (lane.waits() && baton_.try_take()) {
    const Holder holder(*progress_);
    move_until([&lane] { return !lane.waits(); });
  }
  return lane.next(timeout);
}

Status Driver::done(PulledLane& lane, const PulledFiring& firing, const Status& outcome) {
  CORRO_TRY(lane.done(firing, outcome));
  progress_->unpark();
  return {};
}

BucketSet::Ready Driver::ready(Buckets& buckets, uint32_t part) {
  const BucketSet::Ready result = buckets.ready(part);
  if (result == BucketSet::Ready::kComplete) progress_->unpark();
  return result;
}

Status Driver::close(Buckets& buckets, uint64_t generation, uint64_t word) {
  CORRO_TRY(buckets.close(generation, word));
  progress_->unpark();
  return {};
}

Status Driver::join(Buckets& buckets) {
  CORRO_TRY(buckets.join());
  progress_->unpark();
  return {};
}

Status Driver::wait(const Buckets& buckets, uint32_t bucket, Duration timeout) {
  const WaitTimer timer(engine().recorder().steps());
  if (!buckets.over(bucket) && baton_.try_take()) {
    const Holder holder(*progress_);
    move_until([&buckets, bucket] { return buckets.over(bucket); });
  }
  return buckets.wait(bucket, timeout);
}

void Driver::call(const std::function<void(Engine&)>& task) {
  if (baton_.try_take()) {
    const Holder holder(*progress_);
    mover_->run_posts();
    task(engine());
    return;
  }
  std::atomic<uint32_t> done{0};
  std::exception_ptr thrown;
  post([&task, &done, &thrown](Engine& engine) {
    try {
      task(engine);
    } catch (...) {
      thrown = std::current_exception();
    }
    done.store(1, std::memory_order_release);
    io::futex_wake_all(done);
  });
  while (done.load(std::memory_order_acquire) == 0) io::futex_wait(done, 0, Duration(-1));
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace corro::runtime
