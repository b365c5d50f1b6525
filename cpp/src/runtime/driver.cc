#include "runtime/driver.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iterator>

#include "base/exception.h"
#include "io/futex.h"
#include "io/process.h"

namespace corro::runtime {
namespace {

constexpr uint64_t kWakeEvent = UINT64_MAX;       ///< A post; nothing to do but look.
constexpr uint64_t kDataEvent = UINT64_MAX - 1;   ///< Doorbell or stream; polling finds out.
constexpr uint64_t kWatchEvent = UINT64_MAX - 2;  ///< The nested set: a post or a loss.
constexpr uint64_t kLivenessEvent = UINT64_MAX - 3;
constexpr const char* kEnded = "its process has ended";
/// A progress thread that never comes to sleep looks at what it watches every so many passes.
constexpr uint32_t kPassesPerWatch = 64;
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);
constexpr Duration kFlushTime = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Driver>> Driver::create(DriverOptions options) {
  auto driver = std::unique_ptr<Driver>(new Driver(options.caller_ladder, options.progress_ladder));
  CORRO_TRY(driver->set_up(std::move(options)));
  return driver;
}

Status Driver::set_up(DriverOptions options) {
  doorbell_ = std::make_unique<io::EventFd>(std::move(options.doorbell));
  peer_bells_ = std::move(options.peer_bells);
  CORRO_ASSIGN(io::EventFd wake, io::EventFd::create());
  wake_ = std::make_unique<io::EventFd>(std::move(wake));
  CORRO_ASSIGN(io::Epoll watch, io::Epoll::create());
  watch_ = std::make_unique<io::Epoll>(std::move(watch));
  CORRO_ASSIGN(io::Epoll all, io::Epoll::create());
  all_ = std::make_unique<io::Epoll>(std::move(all));

  options.engine.wake = [this](int32_t rank) {
    io::EventFd::ring(peer_bells_[static_cast<size_t>(rank)].get());
  };
  std::map<MemberId, int> stream_fds;
  for (size_t r = 0; r < options.engine.peers.size(); ++r) {
    const EnginePeer& peer = options.engine.peers[r];
    if (peer.stream != nullptr && peer.stream->poll_fd() >= 0)
      stream_fds[static_cast<MemberId>(r)] = peer.stream->poll_fd();
  }
  CORRO_ASSIGN(engine_, Engine::create(std::move(options.engine)));

  CORRO_TRY(watch_->add(wake_->fd(), EPOLLIN, kWakeEvent));
  CORRO_TRY(watch_peers(options.peer_pids));
  liveness_ = std::move(options.liveness);
  if (liveness_ != nullptr) CORRO_TRY(watch_->add(liveness_->poll_fd(), EPOLLIN, kLivenessEvent));
  CORRO_TRY(all_->add(watch_->fd(), EPOLLIN, kWatchEvent));
  CORRO_TRY(all_->add(doorbell_->fd(), EPOLLIN, kDataEvent, io::Trigger::kEdge));
  CORRO_TRY(watch_streams(stream_fds));
  // Signals are for the program's threads.
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  thread_ = std::thread([this] { progress_main(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "corro-progress");
  return {};
}

/// Two sets: one that ends a sleep, and one to ask who is readable. With one stream a look at it is
/// as cheap as the question.
Status Driver::watch_streams(const std::map<MemberId, int>& streams) {
  for (const auto& [member, fd] : streams)
    CORRO_TRY(all_->add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, kDataEvent, io::Trigger::kEdge));
  if (streams.size() < 2) return {};
  CORRO_ASSIGN(io::Epoll readable, io::Epoll::create());
  readable_ = std::make_unique<io::Epoll>(std::move(readable));
  for (const auto& [member, fd] : streams)
    CORRO_TRY(readable_->add(fd, EPOLLIN | EPOLLRDHUP, static_cast<uint64_t>(member)));
  engine_->peers().ask_readable = [this](Peers& peers) {
    std::array<epoll_event, 64> events{};
    const auto ready = readable_->wait(events, Duration::zero());
    for (size_t i = 0; ready.ok() && i < *ready; ++i)
      peers.mark_readable(static_cast<MemberId>(events[i].data.u64));
  };
  return {};
}

Status Driver::watch_peers(const std::vector<int32_t>& pids) {
  pidfds_.resize(pids.size());
  for (size_t r = 0; r < pids.size(); ++r) {
    if (pids[r] == 0) continue;
    auto pidfd = io::open_pidfd(pids[r]);
    if (pidfd.status().code() == Code::kNotFound)  // It died while this rank connected.
      note_losses({{static_cast<int32_t>(r), kEnded}});
    if (!pidfd.ok()) continue;  // A kernel without pidfds: streams and deadlines are left.
    CORRO_TRY(watch_->add(pidfd->get(), EPOLLIN, r));
    pidfds_[r] = std::move(pidfd).value();
  }
  return {};
}

void Driver::note_losses(std::vector<Loss> losses) {
  if (losses.empty()) return;
  std::ranges::move(losses, std::back_inserter(*losses_.lock()));
  attention_.store(1, std::memory_order_seq_cst);
}

Driver::~Driver() {
  CORRO_CHECK(!abandoned(), "a driver in a forked child is let go, not destroyed");
  if (thread_.joinable()) {
    close();
    stopping_.store(true, std::memory_order_seq_cst);
    wake_->ring();
    thread_.join();
  }
}

void Driver::close() {
  flush();
  call([](Engine& engine) { engine.close(); });
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
  for (io::Fd& pidfd : pidfds_) pidfd.reset();
  engine_->close_descriptors();
  if (liveness_ != nullptr) liveness_->abandon_in_child();
  doorbell_.reset();
  wake_.reset();
  watch_.reset();
  all_.reset();
  readable_.reset();
}

// -- the baton ------------------------------------------------------------------------------------

bool Driver::try_take_baton() {
  uint32_t free = 0;
  return baton_.compare_exchange_strong(free, 1, std::memory_order_acquire);
}

void Driver::take_baton() {
  if (try_take_baton()) return;
  while (baton_.exchange(2, std::memory_order_acquire) != 0)
    io::futex_wait(baton_, 2, Duration(-1));
}

void Driver::release_baton() {
  // What the holder leaves undone is the progress thread's.
  const bool work_left = !engine_->idle() || posted_.load(std::memory_order_seq_cst) > 0 ||
                         attention_.load(std::memory_order_seq_cst) > 0;
  if (baton_.exchange(0, std::memory_order_release) == 2) io::futex_wake_all(baton_);
  if (work_left && parked_.exchange(0, std::memory_order_seq_cst) == 1) wake_->ring();
}

/// Held by who has taken it.
class Driver::Baton {
 public:
  explicit Baton(Driver& driver) : driver_(driver) {}
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;
  ~Baton() { driver_.release_baton(); }

 private:
  Driver& driver_;
};

// -- what callers do ------------------------------------------------------------------------------

void Driver::post(Task task) {
  tasks_.lock()->push_back(std::move(task));
  posted_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.exchange(0, std::memory_order_seq_cst) == 1) wake_->ring();
}

void Driver::submit(Group& group, std::shared_ptr<WorkState> work) {
  post([this, &group, work = std::move(work)](Engine&) { submit_now(group, work); });
}

void Driver::try_run(Group& group, const std::shared_ptr<WorkState>& work) {
  if (!try_take_baton()) return submit(group, work);
  const Baton baton(*this);
  run_tasks();
  submit_now(group, work);
  Ladder ladder(caller_ladder_);
  while (!work->done()) {
    if (pass()) {
      ladder.reset();
    } else if (!ladder.climb(engine_->uses_streams() ? kStreamPoll : 1)) {
      break;
    }
  }
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
  if (posted_.load(std::memory_order_relaxed) > 0 || !try_take_baton()) return false;
  const Baton baton(*this);
  std::optional<NowOperation> now;
  if (!group.begin_now(request, now)) return false;
  Ladder ladder(caller_ladder_);
  bool over = now->finish(status);
  while (!over && posted_.load(std::memory_order_relaxed) == 0 && ladder.climb()) {
    move_others();
    over = now->finish(status);
  }
  if (over) return true;
  try {
    auto work = std::make_shared<WorkState>(std::vector{request});
    now->become(work, monotonic_now());
    rest = std::move(work);
  } catch (const std::exception& why) {
    status = give_up(why);
  }
  return true;
}

void Driver::call(const std::function<void(Engine&)>& task) {
  if (try_take_baton()) {
    const Baton baton(*this);
    run_tasks();
    task(*engine_);
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

// -- what the holder of the baton does ------------------------------------------------------------

void Driver::submit_now(Group& group, const std::shared_ptr<WorkState>& work) {
  try {
    engine_->submit(group, work, monotonic_now());
  } catch (const std::exception& why) {
    const Status cause = give_up(why);
    while (work->left > 0) work->finish_one(cause);
  }
}

/// An exhausted heap, or a broken contract, in the middle of something: what the engine's groups
/// are doing cannot go on, and their other members have to know.
Status Driver::give_up(const std::exception& why) {
  const Status cause = status_of(why);
  engine_->fail_all(cause);
  return cause;
}

/// While a caller waits for an operation that has no flight, others go on. Tasks wait: they may
/// submit, and what has no flight yet comes before them.
void Driver::move_others() {
  if (!engine_->in_flight()) return;
  try {
    (void)engine_->poll(monotonic_now());
  } catch (const std::exception& why) {
    (void)give_up(why);
  }
}

void Driver::run_tasks() {
  if (posted_.load(std::memory_order_seq_cst) == 0) return;
  std::vector<Task> tasks;
  tasks.swap(*tasks_.lock());
  posted_.fetch_sub(static_cast<uint32_t>(tasks.size()), std::memory_order_seq_cst);
  for (const Task& task : tasks) task(*engine_);
}

void Driver::apply_losses() {
  if (attention_.load(std::memory_order_acquire) == 0) return;
  attention_.store(0, std::memory_order_seq_cst);
  std::vector<Loss> losses;
  losses.swap(*losses_.lock());
  for (const Loss& loss : losses) engine_->peer_ended(loss.rank, loss.how);
}

/// One look at everything; true if anything moved.
bool Driver::pass() {
  try {
    run_tasks();
    apply_losses();
    return engine_->poll(monotonic_now());
  } catch (const std::exception& why) {
    (void)give_up(why);
    return true;
  }
}

void Driver::progress_main() {
  std::array<epoll_event, 16> events{};
  while (!stopping_.load(std::memory_order_seq_cst)) {
    if (posted_.load(std::memory_order_seq_cst) == 0 &&
        attention_.load(std::memory_order_seq_cst) == 0) {
      const auto ready = watch_->wait(events, Duration(-1));
      for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64);
      wakeups_.fetch_add(1, std::memory_order_relaxed);
    }
    parked_.store(0, std::memory_order_seq_cst);
    take_baton();
    move_until_idle();
    parked_.store(1, std::memory_order_seq_cst);
    release_baton();
  }
}

void Driver::move_until_idle() {
  Ladder ladder(progress_ladder_);
  for (uint32_t passes = 1; true; ++passes) {
    const bool moved = pass();
    if (passes % kPassesPerWatch == 0) handle(kWatchEvent);
    if (engine_->idle() && posted_.load(std::memory_order_seq_cst) == 0) return;
    if (moved) {
      ladder.reset();
    } else if (!ladder.climb()) {
      sleep_once();
      ladder.reset();
    }
  }
}

/// Sleeps until a peer rings, a stream moves, somebody posts, a rank dies, or a deadline may be
/// over.
void Driver::sleep_once() {
  parked_.store(1, std::memory_order_seq_cst);
  engine_->set_sleeping(true);
  // Once more with the flags set: whoever publishes from now on rings.
  const bool moved = pass();
  const Duration left = engine_->next_deadline() - monotonic_now();
  if (!moved && !engine_->idle() && posted_.load(std::memory_order_seq_cst) == 0) {
    std::array<epoll_event, 16> events{};
    const Duration longest = kLongestSleep;
    const auto ready = all_->wait(events, std::clamp(left, Duration::zero(), longest));
    for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64);
    wakeups_.fetch_add(1, std::memory_order_relaxed);
  }
  engine_->set_sleeping(false);
  parked_.store(0, std::memory_order_seq_cst);
}

void Driver::handle(uint64_t event) {
  if (event == kDataEvent) {
    doorbell_->drain();
    return;
  }
  if (event == kWakeEvent) {
    wake_->drain();
    return;
  }
  if (event == kWatchEvent) {
    std::array<epoll_event, 16> events{};
    const auto ready = watch_->wait(events, Duration::zero());
    for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64);
    return;
  }
  if (event == kLivenessEvent) return note_losses(liveness_->poll(monotonic_now()));
  // A pidfd stays readable for ever: look at it once only.
  const auto rank = static_cast<int32_t>(event);
  watch_->remove(pidfds_[static_cast<size_t>(rank)].get());
  note_losses({{rank, kEnded}});
  if (liveness_ != nullptr) liveness_->rank_ended(rank, monotonic_now());
}

}  // namespace corro::runtime
