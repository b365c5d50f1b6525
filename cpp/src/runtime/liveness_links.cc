#include "runtime/liveness_links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/socket.h"
#include "wire/liveness_news.h"

namespace corro::runtime {
namespace {

using Kind = LivenessAction::Kind;
using transport::Admission;

/// Events of connections carry kLinks + the rank; those of dialers kFirstForeign + the rank.
constexpr uint64_t kAlarm = Admission::kFirstForeign + (1ULL << 61U);
constexpr uint64_t kLinks = Admission::kFirstForeign + (1ULL << 62U);
/// The higher rank, which dials at the start, has this long before the lower one does it.
constexpr Duration kGentlePause = std::chrono::seconds(2);
/// A network that is down for less than this when a rank is dialled loses nobody.
constexpr Duration kDialPatience = std::chrono::seconds(3);

}  // namespace

LivenessLinks::LivenessLinks(const transport::Connector& connector,
                             const std::vector<std::string>& hosts, io::Epoll epoll,
                             io::Alarm alarm)
    : connector_(connector),
      epoll_(std::move(epoll)),
      alarm_(std::move(alarm)),
      liveness_(connector.options().rank, hosts),
      links_(hosts.size()) {}

Result<std::unique_ptr<LivenessLinks>> LivenessLinks::create(
    const transport::Connector& connector, const std::vector<std::string>& hosts) {
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::Alarm alarm, io::Alarm::create());
  auto links = std::unique_ptr<LivenessLinks>(
      new LivenessLinks(connector, hosts, std::move(epoll), std::move(alarm)));
  CORRO_TRY(links->start(monotonic_now()));
  return links;
}

Status LivenessLinks::start(Time now) {
  CORRO_TRY(epoll_.add(alarm_.fd(), EPOLLIN, kAlarm));
  act(liveness_.start(), now);
  move_on(now);
  return {};
}

void LivenessLinks::admit(transport::JoinedPeer peer, Time now) {
  keep(std::move(peer), false, now);
  move_on(now);
}

std::vector<Loss> LivenessLinks::poll(Time now) {
  std::array<epoll_event, 16> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  for (size_t i = 0; ready.ok() && i < *ready; ++i) handle(events[i].data.u64, now);
  move_on(now);
  return std::exchange(losses_, {});
}

void LivenessLinks::rank_ended(int32_t rank, Time now) {
  act(liveness_.ended(rank), now);
  move_on(now);
}

void LivenessLinks::abandon_in_child() {
  for (Link& link : links_) link.fd.reset();
  for (Dial& dial : dials_) {
    if (dial.dialer) dial.dialer->abandon_in_child();
  }
  ::close(epoll_.fd());
  ::close(alarm_.fd());
}

void LivenessLinks::handle(uint64_t event, Time now) {
  if (event == kAlarm) return;  // move_on() looks at the clock in any case.
  if (event >= kLinks) return read(static_cast<int32_t>(event - kLinks), now);
  for (Dial& dial : dials_) {
    if (dial.rank != static_cast<int32_t>(event - Admission::kFirstForeign) || !dial.dialer)
      continue;
    (void)dial.dialer->on_event(now);  // A failure of this rank's own is tried again, too.
    judge(dial, now);
  }
}

/// Everything that time alone brings, and what the events have left to do.
void LivenessLinks::move_on(Time now) {
  for (Dial& dial : dials_) knock(dial, now);
  Time next = Time::never();
  for (const Dial& dial : dials_) {
    if (dial.dialer) next = std::min(next, dial.dialer->next_start());
  }
  alarm_.set(next);
}

void LivenessLinks::knock(Dial& dial, Time now) {
  if (!dial.dialer || dial.dialer->next_start() > now) return;
  if (dial.since == Time{}) dial.since = now;
  (void)dial.dialer->start_if_due(now);
  judge(dial, now);
}

/// What an attempt has come to.
void LivenessLinks::judge(Dial& dial, Time now) {
  const int32_t rank = dial.rank;
  if (auto joined = dial.dialer->take_joined()) return keep(std::move(*joined), true, now);
  const Code failure = dial.dialer->failure();
  if (failure == Code::kUnavailable) return act(liveness_.ended(rank), now);
  if (failure == Code::kDeadlineExceeded && now - dial.since >= kDialPatience)
    act(liveness_.unreachable(rank), now);
}

void LivenessLinks::keep(transport::JoinedPeer peer, bool dialed_here, Time now) {
  if (!liveness_.keeps(peer.rank, dialed_here)) return;
  forget(peer.rank);
  Link& link = links_[static_cast<size_t>(peer.rank)];
  link.fd = std::move(peer.socket);
  const uint64_t event = kLinks + static_cast<uint64_t>(peer.rank);
  const Status watched = epoll_.add(link.fd.get(), EPOLLIN, event);
  act(liveness_.linked(peer.rank, dialed_here), now);
  if (watched.ok()) return;
  drop(peer.rank);
  act(liveness_.closed(peer.rank), now);
}

void LivenessLinks::read(int32_t rank, Time now) {
  while (links_[static_cast<size_t>(rank)].fd.valid() && read_news(rank, now)) {
  }
}

/// True if there may be more.
bool LivenessLinks::read_news(int32_t rank, Time now) {
  Link& link = links_[static_cast<size_t>(rank)];
  std::array<std::byte, wire::kLivenessNewsBytes> buffer;
  const size_t wanted = buffer.size() - link.received.size();
  const io::Received received = io::receive_message(link.fd.get(), std::span(buffer).first(wanted));
  if (received.would_block) return false;
  if (received.closed || received.truncated) {
    const Code code = io::connection_status({}, received.error).code();
    drop(rank);
    act(code == Code::kDeadlineExceeded ? liveness_.unreachable(rank) : liveness_.closed(rank),
        now);
    return false;
  }
  link.received.insert(link.received.end(), buffer.begin(),
                       buffer.begin() + static_cast<std::ptrdiff_t>(received.bytes));
  if (link.received.size() < wire::kLivenessNewsBytes) return true;
  const auto news = wire::decode_liveness_news(std::exchange(link.received, {}));
  if (!news.ok()) {
    drop(rank);
    act(liveness_.closed(rank), now);
    return false;
  }
  act(liveness_.told(rank, news->host, news->witness), now);
  return true;
}

void LivenessLinks::act(const Liveness::Actions& actions, Time now) {
  for (const LivenessAction& action : actions) {
    switch (action.kind) {
      case Kind::kDial:
        begin_dial(action, now);
        break;
      case Kind::kForget:
        forget(action.rank);
        break;
      case Kind::kTell:
        tell(action, now);
        break;
      case Kind::kLose:
        losses_.push_back({action.rank, fmt::format("its host does not answer (noticed by rank {})",
                                                    action.witness)});
        break;
    }
  }
}

void LivenessLinks::begin_dial(const LivenessAction& action, Time now) {
  const auto place =
      std::find_if(dials_.begin(), dials_.end(), [](const Dial& dial) { return !dial.dialer; });
  CORRO_CHECK(place != dials_.end(), action.rank);
  place->rank = action.rank;
  place->since = {};
  place->dialer.emplace(connector_.options(), connector_.place(action.rank), action.rank, epoll_,
                        wire::Purpose::kLiveness, !liveness_.is_local(action.rank),
                        now + (action.gently ? kGentlePause : Duration::zero()));
}

/// Ends the dialling of a rank, and the connection to it.
void LivenessLinks::forget(int32_t rank) {
  for (Dial& dial : dials_) {
    if (dial.rank == rank) dial.dialer.reset();
  }
  drop(rank);
}

void LivenessLinks::drop(int32_t rank) {
  Link& link = links_[static_cast<size_t>(rank)];
  link.received.clear();
  if (!link.fd.valid()) return;
  epoll_.remove(link.fd.get());
  link.fd.reset();
}

void LivenessLinks::tell(const LivenessAction& news, Time now) {
  const io::Fd& fd = links_[static_cast<size_t>(news.rank)].fd;
  if (!fd.valid()) return;
  // A connection that carries next to nothing has room, and a new one gets all news.
  const auto sent = io::send_message(
      fd.get(), wire::encode_liveness_news({.host = news.host, .witness = news.witness}));
  if (sent.ok() && *sent) return;
  drop(news.rank);
  act(liveness_.closed(news.rank), now);
}

}  // namespace corro::runtime
