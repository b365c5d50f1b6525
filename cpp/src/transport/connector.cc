#include "transport/connector.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace corro::transport {
namespace {

/// Events of dialers carry kFirstForeign + the rank.
constexpr uint64_t kAlarm = Admission::kFirstForeign + (1ULL << 61U);
constexpr uint64_t kIntroductions = kAlarm + 1;
/// Without descriptors nobody is accepted for so long.
constexpr Duration kDoorsShut = std::chrono::milliseconds(500);

}  // namespace

Result<std::unique_ptr<Connector>> Connector::create(const MeshOptions& options, Doors doors,
                                                     Time started) {
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::Epoll introductions, io::Epoll::create());
  CORRO_ASSIGN(io::Alarm alarm, io::Alarm::create());
  auto connector = std::unique_ptr<Connector>(
      new Connector(options, std::move(doors), std::move(epoll), std::move(introductions),
                    std::move(alarm), started));
  CORRO_TRY(connector->start());
  return connector;
}

Connector::Connector(const MeshOptions& options, Doors doors, io::Epoll epoll,
                     io::Epoll introductions, io::Alarm alarm, Time started)
    : options_(options),
      doors_(std::move(doors)),
      epoll_(std::move(epoll)),
      alarm_(std::move(alarm)),
      admission_(options_, doors_, epoll_,
                 [this](int32_t rank, wire::Purpose purpose) { return wants(rank, purpose); }),
      introductions_(options_, doors_, std::move(introductions), started),
      there_(static_cast<size_t>(options.size)) {}

Status Connector::start() {
  CORRO_TRY(admission_.start());
  CORRO_TRY(epoll_.add(introductions_.poll_fd(), EPOLLIN, kIntroductions));
  return epoll_.add(alarm_.fd(), EPOLLIN, kAlarm);
}

bool Connector::is_local(int32_t rank) const {
  return place(rank).record.host_id == doors_.record.host_id;
}

/// Asked when a rank has dialled this one.
bool Connector::wants(int32_t rank, wire::Purpose purpose) const {
  if (purpose == wire::Purpose::kBootstrap || purpose == wire::Purpose::kTable) return false;
  if (purpose != wire::Purpose::kStream) return true;
  if (there_[static_cast<size_t>(rank)]) return false;
  return !dialers_.contains(rank) || rank > options_.rank;
}

void Connector::dial(int32_t rank, Time now) {
  if (there_[static_cast<size_t>(rank)] || dialers_.contains(rank)) return;
  const bool over_tcp = options_.local == LocalTransport::kTcp || !is_local(rank);
  dialers_.try_emplace(rank, options_, place(rank), rank, epoll_, wire::Purpose::kStream, over_tcp);
  advance_dialers(now);
  alarm_.set(next_wake());
}

void Connector::forget(int32_t rank) {
  there_[static_cast<size_t>(rank)] = true;
  dialers_.erase(rank);
}

void Connector::poll(Time now) {
  std::array<epoll_event, 64> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64, now);
  introductions_.poll(now);
  sort_joined(now);
  admission_.expire(now);
  advance_dialers(now);
  if (doors_open_ != Time{} && doors_open_ <= now) {
    doors_open_ = {};
    (void)admission_.start();
  }
  alarm_.set(next_wake());
}

void Connector::handle(uint64_t event, Time now) {
  if (event >= kAlarm) return;  // poll() looks at the clock and at introductions in any case.
  if (event >= Admission::kFirstForeign) {
    const auto dialer = dialers_.find(static_cast<int32_t>(event - Admission::kFirstForeign));
    // A failure of this rank's own is tried again, too.
    if (dialer != dialers_.end()) (void)dialer->second.on_event(now);
    return;
  }
  if (admission_.on_event(event, now).ok()) return sort_joined(now);
  admission_.pause();
  doors_open_ = now + kDoorsShut;
}

/// Hands those who have dialled this rank to whom they came for.
void Connector::sort_joined(Time now) {
  for (JoinedPeer& joined : admission_.take_joined()) {
    if (joined.purpose == wire::Purpose::kJoining) {
      introductions_.admit(std::move(joined), now);
      continue;
    }
    if (joined.purpose == wire::Purpose::kStream) forget(joined.rank);
    joined_.push_back(std::move(joined));
  }
}

void Connector::advance_dialers(Time now) {
  std::vector<int32_t> done;
  for (auto& [rank, dialer] : dialers_) {
    (void)dialer.start_if_due(now);
    if (auto joined = dialer.take_joined()) {
      joined_.push_back(std::move(*joined));
      done.push_back(rank);
    } else if (dialer.nobody_listens()) {
      gone_.push_back({rank, dialer.reason()});
      done.push_back(rank);
    }
  }
  for (const int32_t rank : done) forget(rank);
}

Time Connector::next_wake() const {
  Time next = std::min(admission_.next_expiry(), introductions_.next_wake());
  if (doors_open_ != Time{}) next = std::min(next, doors_open_);
  for (const auto& [rank, dialer] : dialers_) next = std::min(next, dialer.next_start());
  return next;
}

std::string Connector::trouble(int32_t rank) const {
  const auto dialer = dialers_.find(rank);
  return dialer == dialers_.end() ? std::string() : dialer->second.reason();
}

void Connector::finish_joining() {
  options_.bootstrap = nullptr;
  options_.shared_descriptors.clear();
}

void Connector::abandon_in_child() {
  for (auto& [rank, dialer] : dialers_) dialer.abandon_in_child();
  introductions_.abandon_in_child();
  doors_.unix_listener.reset();
  doors_.tcp_listener.reset();
  ::close(epoll_.fd());
  ::close(alarm_.fd());
}

}  // namespace corro::transport
