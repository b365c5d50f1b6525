#include "runtime/watch.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "io/process.h"

namespace corro::runtime {
namespace {

constexpr uint64_t kWakeEvent = UINT64_MAX;      ///< Nothing to do but look.
constexpr uint64_t kDataEvent = UINT64_MAX - 1;  ///< Doorbell or stream; polling finds out.
constexpr uint64_t kIdleEvent = UINT64_MAX - 2;  ///< The nested set.
constexpr uint64_t kLivenessEvent = UINT64_MAX - 3;
constexpr uint64_t kConnectorEvent = UINT64_MAX - 4;
constexpr uint64_t kEpochEvent = UINT64_MAX - 5;
constexpr const char* kEnded = "its process has ended";

}  // namespace

Result<std::unique_ptr<Watch>> Watch::create(WatchOptions options) {
  auto watch = std::unique_ptr<Watch>(new Watch());
  CORRO_TRY(watch->set_up(std::move(options)));
  return watch;
}

Status Watch::set_up(WatchOptions options) {
  doorbell_ = std::make_unique<io::EventFd>(std::move(options.doorbell));
  connector_ = std::move(options.connector);
  liveness_ = std::move(options.liveness);
  epochs_ = std::move(options.epochs);
  epoch_ = options.epoch;
  metrics_ = std::move(options.metrics);
  CORRO_ASSIGN(io::EventFd wake, io::EventFd::create());
  wake_ = std::make_unique<io::EventFd>(std::move(wake));
  CORRO_ASSIGN(io::Epoll idle, io::Epoll::create());
  idle_ = std::make_unique<io::Epoll>(std::move(idle));
  CORRO_ASSIGN(io::Epoll busy, io::Epoll::create());
  busy_ = std::make_unique<io::Epoll>(std::move(busy));
  CORRO_ASSIGN(io::Epoll readable, io::Epoll::create());
  readable_ = std::make_unique<io::Epoll>(std::move(readable));

  CORRO_TRY(idle_->add(wake_->fd(), EPOLLIN, kWakeEvent));
  CORRO_TRY(add_processes(options.pids));
  if (liveness_ != nullptr) CORRO_TRY(idle_->add(liveness_->poll_fd(), EPOLLIN, kLivenessEvent));
  if (connector_ != nullptr) {
    CORRO_TRY(idle_->add(connector_->poll_fd(), EPOLLIN, kConnectorEvent));
    connect();  // Others may have been faster.
  }
  if (epochs_ != nullptr) {
    CORRO_TRY(idle_->add(epochs_->fd(), EPOLLIN, kEpochEvent));
    look_for_epoch();  // It may have come while this rank joined.
  }
  CORRO_TRY(busy_->add(idle_->fd(), EPOLLIN, kIdleEvent));
  CORRO_TRY(busy_->add(doorbell_->fd(), EPOLLIN, kDataEvent, io::Trigger::kEdge));
  for (const auto& [member, fd] : options.streams) add_stream(member, fd);
  return {};
}

/// Two sets: one that ends a sleep, and one to ask who is readable. Where the kernel has no room
/// for a descriptor, deadlines are left.
void Watch::add_stream(MemberId member, int fd) {
  if (fd < 0) return;
  (void)busy_->add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, kDataEvent, io::Trigger::kEdge);
  (void)readable_->add(fd, EPOLLIN | EPOLLRDHUP, static_cast<uint64_t>(member));
  ++streams_;
}

void Watch::add_aggregator(int fd) {
  (void)busy_->add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, kDataEvent, io::Trigger::kEdge);
}

Status Watch::add_processes(const std::vector<int32_t>& pids) {
  pidfds_.resize(pids.size());
  for (size_t r = 0; r < pids.size(); ++r) {
    if (pids[r] == 0) continue;
    auto pidfd = io::open_pidfd(pids[r]);
    if (pidfd.status().code() == Code::kNotFound)  // It died while this rank connected.
      note({{static_cast<int32_t>(r), kEnded}});
    if (!pidfd.ok()) continue;  // A kernel without pidfds: streams and deadlines are left.
    CORRO_TRY(idle_->add(pidfd->get(), EPOLLIN, r));
    pidfds_[r] = std::move(pidfd).value();
  }
  return {};
}

void Watch::sleep_while_idle() {
  wait(*idle_, Duration(-1));
  metrics_.add(obs::Metric::kWakeups);
}

void Watch::sleep_while_busy(Duration longest) {
  wait(*busy_, longest);
  metrics_.add(obs::Metric::kWakeups);
}

void Watch::look() { wait(*idle_, Duration::zero()); }

void Watch::wait(io::Epoll& set, Duration longest) {
  std::array<epoll_event, 16> events{};
  const auto ready = set.wait(events, longest);
  for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64);
}

void Watch::handle(uint64_t event) {
  if (event == kDataEvent) {
    doorbell_->drain();
  } else if (event == kWakeEvent) {
    wake_->drain();
    dial_wanted();
  } else if (event == kConnectorEvent) {
    connect();
  } else if (event == kIdleEvent) {
    look();
  } else if (event == kLivenessEvent) {
    note(liveness_->poll(monotonic_now()));
  } else if (event == kEpochEvent) {
    look_for_epoch();
  } else {
    process_ended(static_cast<int32_t>(event));
  }
}

void Watch::process_ended(int32_t rank) {
  idle_->remove(pidfds_[static_cast<size_t>(rank)].get());
  connect();  // It may have dialled this rank, and said something, before.
  note({{rank, kEnded}});
  if (liveness_ != nullptr) liveness_->rank_ended(rank, monotonic_now());
}

void Watch::note(std::vector<Loss> losses) {
  if (losses.empty()) return;
  for (const Loss& loss : losses) {
    if (connector_ != nullptr) connector_->forget(loss.rank);
  }
  std::ranges::move(losses, std::back_inserter(*losses_.lock()));
  news_.store(1, std::memory_order_seq_cst);
}

void Watch::look_for_epoch() {
  if (!epochs_->poll()) idle_->remove(epochs_->fd());
  const uint32_t broken_off = epochs_->broken_off();
  if (epochs_->prepared() > epoch_ && !epoch_ends_.exchange(true, std::memory_order_acq_rel))
    news_.store(1, std::memory_order_seq_cst);
  if (broken_off <= epoch_) return;
  epoch_ = broken_off;
  *epoch_end_.lock() = epochs_->why();
  news_.store(1, std::memory_order_seq_cst);
}

/// Losses are taken last: what is noted after that is new.
std::vector<Loss> Watch::take_losses() {
  news_.store(0, std::memory_order_seq_cst);
  std::vector<Loss> losses = std::exchange(*losses_.lock(), {});
  if (!new_streams_.lock()->empty()) news_.store(1, std::memory_order_seq_cst);
  return losses;
}

std::optional<std::string> Watch::take_epoch_end() {
  return std::exchange(*epoch_end_.lock(), std::nullopt);
}

std::vector<transport::JoinedPeer> Watch::take_streams() {
  return std::exchange(*new_streams_.lock(), {});
}

void Watch::want(const std::vector<MemberId>& members) {
  if (members.empty()) return;
  std::ranges::copy(members, std::back_inserter(*wanted_.lock()));
  wake();
}

void Watch::dial_wanted() {
  if (connector_ == nullptr) return;
  const std::vector<MemberId> wanted = std::exchange(*wanted_.lock(), {});
  for (const MemberId member : wanted) connector_->dial(member, monotonic_now());
  if (!wanted.empty()) connect();
}

/// Moves the connector, and notes what it has made.
void Watch::connect() {
  if (connector_ == nullptr) return;
  const Time now = monotonic_now();
  connector_->poll(now);
  for (transport::JoinedPeer& joined : connector_->take_joined()) {
    if (joined.purpose == wire::Purpose::kStream) {
      new_streams_.lock()->push_back(std::move(joined));
      news_.store(1, std::memory_order_seq_cst);
    } else if (liveness_ != nullptr) {
      liveness_->admit(std::move(joined), now);
      note(liveness_->poll(now));
    }
  }
  for (const transport::Connector::Gone& gone : connector_->take_gone())
    note({{.rank = gone.rank, .how = "its process has ended: " + gone.how, .unmet = true}});
}

void Watch::for_each_readable(const std::function<void(MemberId)>& visit) {
  std::array<epoll_event, 64> events{};
  const auto ready = readable_->wait(events, Duration::zero());
  for (size_t i = 0; ready.ok() && i < *ready; ++i)
    visit(static_cast<MemberId>(events[i].data.u64));
}

void Watch::abandon_in_child() {
  for (io::Fd& pidfd : pidfds_) pidfd.reset();
  if (liveness_ != nullptr) liveness_->abandon_in_child();
  if (connector_ != nullptr) connector_->abandon_in_child();
  if (epochs_ != nullptr) epochs_->abandon_in_child();
  doorbell_.reset();
  wake_.reset();
  idle_.reset();
  busy_.reset();
  readable_.reset();
}

}  // namespace corro::runtime
