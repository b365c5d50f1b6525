#include "transport/introductions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "io/process.h"
#include "io/socket.h"

namespace corro::transport {
namespace {

using wire::JoiningPacket;

/// Events of links carry kLinks + the link's id, those of watched processes kWatch + the rank,
/// those of dialers Admission::kFirstForeign + the rank. Processes are looked at last: what one has
/// sent before its end counts.
constexpr uint64_t kLinks = 0;
constexpr uint64_t kWatch = Admission::kFirstForeign + (1ULL << 62U);

/// More than a round takes.
constexpr size_t kMostEarly = 256;

Joining::Options joining_options(int32_t rank, size_t size, const Doors& doors, Time started,
                                 Time deadline) {
  return {.rank = rank,
          .size = static_cast<int32_t>(size),
          .introduction = wire::encode_peer_record(doors.record),
          .started = started,
          .deadline = deadline};
}

std::vector<int32_t> all_ranks(int32_t size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Introductions::Introductions(const MeshOptions& options, const Doors& doors, io::Epoll epoll,
                             Time started)
    : options_(options),
      doors_(doors),
      epoll_(std::move(epoll)),
      started_(started),
      all_{.of_host = false,
           .members = all_ranks(options.size),
           .joining = Joining(joining_options(options.rank, static_cast<size_t>(options.size),
                                              doors, started, options.deadline))},
      places_(static_cast<size_t>(options.size)),
      descriptors_(static_cast<size_t>(options.size)) {
  learn(options.rank, wire::encode_peer_record(doors.record), started);
  act(started);
}

Introductions::~Introductions() = default;

int32_t Introductions::Circle::index_of(int32_t rank) const {
  const auto found = std::ranges::lower_bound(members, rank);
  if (found == members.end() || *found != rank) return -1;
  return static_cast<int32_t>(found - members.begin());
}

Introductions::Circle* Introductions::circle_of(bool of_host) {
  if (!of_host) return &all_;
  return host_ ? &*host_ : nullptr;
}

bool Introductions::is_local(int32_t rank) const {
  const auto& place = places_[static_cast<size_t>(rank)];
  return place && place->record.host_id == doors_.record.host_id;
}

// -- what the rounds want -------------------------------------------------------------------------

void Introductions::act(Time now) {
  for (bool more = true; more;) {
    more = false;
    for (Circle* circle : {&all_, host_ ? &*host_ : nullptr}) {
      if (circle == nullptr) continue;
      for (const JoiningAction& action : circle->joining.take_actions()) {
        act(*circle, action, now);
        more = true;
      }
    }
    if (!host_ && all_.joining.over() && all_.joining.failure().ok()) start_circle_of_host(now);
  }
}

void Introductions::act(Circle& circle, const JoiningAction& action, Time now) {
  const int32_t rank = circle.members[static_cast<size_t>(action.rank)];
  JoiningPacket packet{.of_host = circle.of_host, .round = action.round, .introductions = {}};
  Link* link = nullptr;
  switch (action.kind) {
    case JoiningAction::Kind::kAsk:
      if (circle.of_host) return circle.joining.found(action.rank, now);
      asks_.push_back(rank);
      return;
    case JoiningAction::Kind::kDial:
      return dial(rank, now);
    case JoiningAction::Kind::kKnown:
      packet.kind = JoiningPacket::Kind::kKnown;
      link = link_to(rank, false);
      break;
    case JoiningAction::Kind::kTell:
      link = link_to(rank, true);
      break;
  }
  if (link == nullptr) return;
  for (const int32_t member : action.ranks) {
    if (packet.introductions.size() == wire::kMostIntroductions) {
      queue(*link, packet);
      packet.introductions.clear();
    }
    const auto i = static_cast<size_t>(member);
    packet.introductions.push_back(
        {.rank = circle.members[i], .record = circle.joining.introductions()[i]});
  }
  queue(*link, packet);
  write(link->id, now);
}

void Introductions::queue(Link& link, const JoiningPacket& packet) {
  Link::Sending sending;
  JoiningPacket with_descriptors = packet;
  for (wire::Introduction& introduction : with_descriptors.introductions) {
    if (!link.local) continue;
    const auto before = sending.descriptors.size();
    if (introduction.rank == options_.rank) {
      sending.descriptors.insert(sending.descriptors.end(), options_.shared_descriptors.begin(),
                                 options_.shared_descriptors.end());
    } else {
      for (const io::Fd& fd : descriptors_[static_cast<size_t>(introduction.rank)])
        sending.descriptors.push_back(fd.get());
    }
    introduction.descriptors = static_cast<uint8_t>(sending.descriptors.size() - before);
  }
  sending.bytes = wire::encode_joining_packet(with_descriptors);
  link.to_send.push_back(std::move(sending));
}

void Introductions::dial(int32_t rank, Time now) {
  const bool over_tcp = !is_local(rank);
  const auto [dialer, made] =
      dialers_.try_emplace(rank, options_, *places_[static_cast<size_t>(rank)], rank, epoll_,
                           wire::Purpose::kJoining, over_tcp);
  if (made) (void)dialer->second.start_if_due(now);
}

/// Where a job has several hosts, descriptors go round once more, on this one.
void Introductions::start_circle_of_host(Time now) {
  std::vector<int32_t> members;
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (is_local(rank)) members.push_back(rank);
  }
  if (std::ssize(members) == options_.size) members = {options_.rank};
  const auto own = std::ranges::find(members, options_.rank) - members.begin();
  const size_t size = members.size();
  host_.emplace(Circle{.of_host = true,
                       .members = std::move(members),
                       .joining = Joining(joining_options(static_cast<int32_t>(own), size, doors_,
                                                          started_, options_.deadline))});
  for (const int32_t rank : host_->members) watch(rank);
  for (const int32_t rank : ended_) ended(rank);
  for (Early& early : std::exchange(early_, {})) {
    const auto link = links_.find(early.link);
    if (link != links_.end()) hear(link->second, early.packet, std::move(early.descriptors), now);
  }
}

// -- what is known of ranks -----------------------------------------------------------------------

std::vector<int32_t> Introductions::take_asks() { return std::exchange(asks_, {}); }

void Introductions::found(int32_t rank, BytesView record, Time now) {
  learn(rank, record, now);
  if (!places_[static_cast<size_t>(rank)]) return;
  watch(rank);
  all_.joining.found(rank, now);
  act(now);
}

void Introductions::learn(int32_t rank, BytesView record, Time now) {
  auto& place = places_[static_cast<size_t>(rank)];
  if (place) return;
  auto read = place_of(rank, record);
  if (!read.ok()) return all_.joining.gone(rank, read.status());
  place = std::move(*read);
  if (rank != 0) return check(rank, now);
  for (int32_t r = 0; r < options_.size; ++r) check(r, now);
}

/// What makes the job impossible is told to all, so that each says why.
void Introductions::check(int32_t rank, Time now) {
  const auto& place = places_[static_cast<size_t>(rank)];
  if (!place) return;
  if (places_[0]) {
    const Status settings =
        check_settings(rank, place->record.settings, places_[0]->record.settings);
    if (!settings.ok()) all_.joining.refuse(settings, now);
  }
  const bool over_tcp = !is_local(rank) && places_[static_cast<size_t>(options_.rank)];
  if (!over_tcp || options_.secret) return;
  over_tcp_.push_back(rank);
  all_.joining.refuse(no_secret(options_, over_tcp_), now);
}

void Introductions::watch(int32_t rank) {
  const int32_t pid = places_[static_cast<size_t>(rank)]->record.pid;
  if (!is_local(rank) || pid == getpid() || watched_.contains(rank)) return;
  auto process = io::open_pidfd(pid);
  if (process.status().code() == Code::kNotFound) return ended(rank);
  if (!process.ok()) return;  // A kernel without pidfds: the deadline is left.
  const uint64_t event = kWatch + static_cast<uint64_t>(rank);
  if (epoll_.add(process->get(), EPOLLIN, event).ok())
    watched_.emplace(rank, std::move(process).value());
}

void Introductions::ended(int32_t rank) {
  gone(rank, {Code::kUnavailable,
              fmt::format("connect: rank {} (pid {}) ended before it was connected", rank,
                          places_[static_cast<size_t>(rank)]->record.pid),
              FailureDetail{.rank = rank, .op = "connect", .phase = "connect"}});
}

void Introductions::gone(int32_t rank, const Status& why) {
  all_.joining.gone(rank, why);
  if (host_ && host_->index_of(rank) >= 0) host_->joining.gone(host_->index_of(rank), why);
}

std::vector<io::Fd> Introductions::take_descriptors(int32_t rank) {
  return std::exchange(descriptors_[static_cast<size_t>(rank)], {});
}

bool Introductions::over() const {
  if (!all_.joining.over()) return false;
  return !all_.joining.failure().ok() || (host_ && host_->joining.over());
}

Status Introductions::failure() const {
  if (!all_.joining.failure().ok() || !host_) return all_.joining.failure();
  return host_->joining.failure();
}

// -- connections ----------------------------------------------------------------------------------

void Introductions::poll(Time now) {
  std::array<epoll_event, 64> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  const auto happened = std::span(events).first(ready.ok() ? *ready : 0);
  std::ranges::sort(happened, {}, [](const epoll_event& event) { return event.data.u64; });
  for (const epoll_event& event : happened) {
    const uint64_t data = event.data.u64;
    if (data >= kWatch) {
      // With a full batch something that a dead rank had sent before may still wait behind.
      const auto rank = static_cast<int32_t>(data - kWatch);
      if (happened.size() == events.size()) break;
      epoll_.remove(watched_[rank].get());
      ended_.push_back(rank);
      ended(rank);
    } else if (data >= Admission::kFirstForeign) {
      const auto dialer = dialers_.find(static_cast<int32_t>(data - Admission::kFirstForeign));
      if (dialer != dialers_.end()) (void)dialer->second.on_event(now);
    } else {
      if ((event.events & EPOLLOUT) != 0) write(data - kLinks, now);
      read(data - kLinks, now);
    }
  }
  for (auto dialer = dialers_.begin(); dialer != dialers_.end();) {
    (void)dialer->second.start_if_due(now);
    auto joined = dialer->second.take_joined();
    const int32_t rank = dialer->first;
    if (!joined) all_.joining.note_trouble(rank, dialer->second.reason());
    dialer = joined ? dialers_.erase(dialer) : std::next(dialer);
    if (joined) add_link(std::move(*joined), true, now);
  }
  if (all_.joining.next_wake() <= now || all_.joining.over()) all_.joining.expire(now);
  if (host_ && host_->joining.next_wake() <= now) host_->joining.expire(now);
  act(now);
}

Time Introductions::next_wake() const {
  Time wake = all_.joining.next_wake();
  if (host_) wake = std::min(wake, host_->joining.next_wake());
  for (const auto& [rank, dialer] : dialers_) wake = std::min(wake, dialer.next_start());
  return wake;
}

void Introductions::admit(JoinedPeer joined, Time now) {
  if (Link* before = link_to(joined.rank, false)) drop(before->id, now);
  add_link(std::move(joined), false, now);
  act(now);
}

void Introductions::add_link(JoinedPeer joined, bool dialled_here, Time now) {
  const uint64_t id = next_link_++;
  const auto [link, made] = links_.try_emplace(id, Link{.id = id,
                                                        .rank = joined.rank,
                                                        .dialled_here = dialled_here,
                                                        .local = joined.local,
                                                        .socket = std::move(joined.socket),
                                                        .received = {},
                                                        .to_send = {}});
  if (!epoll_.add(link->second.socket.get(), EPOLLIN, kLinks + id).ok()) return drop(id, now);
  if (!dialled_here) return;
  for (Circle* circle : {&all_, host_ ? &*host_ : nullptr}) {
    const int32_t index = circle == nullptr ? -1 : circle->index_of(joined.rank);
    if (index >= 0) circle->joining.linked(index, now);
  }
}

Introductions::Link* Introductions::link_to(int32_t rank, bool dialled_here) {
  for (auto& [id, link] : links_) {
    if (link.rank == rank && link.dialled_here == dialled_here) return &link;
  }
  return nullptr;
}

/// Hangs up. What was said on it may be lost: rounds that were told there are told again.
void Introductions::drop(uint64_t id, Time now) {
  auto node = links_.extract(id);
  if (node.empty()) return;
  Link& link = node.mapped();
  epoll_.remove(link.socket.get());
  if (!link.dialled_here) return;
  for (Circle* circle : {&all_, host_ ? &*host_ : nullptr}) {
    const int32_t index = circle == nullptr ? -1 : circle->index_of(link.rank);
    if (index >= 0) circle->joining.unlinked(index, now);
  }
}

void Introductions::write(uint64_t id, Time now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (!flush(link)) return drop(id, now);
  const uint32_t events = link.to_send.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (!epoll_.modify(link.socket.get(), events, kLinks + id).ok()) drop(id, now);
}

/// False if the connection has broken.
bool Introductions::flush(Link& link) const {
  while (!link.to_send.empty()) {
    Link::Sending& sending = link.to_send.front();
    if (link.local) {
      const auto sent = io::send_message(link.socket.get(), sending.bytes, sending.descriptors);
      if (!sent.ok()) return false;
      if (!*sent) return true;
    } else {
      const auto sent =
          io::send_some(link.socket.get(), BytesView(sending.bytes).subspan(sending.sent));
      if (!sent.ok()) return false;
      sending.sent += *sent;
      if (sending.sent < sending.bytes.size()) return true;
    }
    link.to_send.pop_front();
  }
  return true;
}

void Introductions::read(uint64_t id, Time now) {
  for (auto found = links_.find(id); found != links_.end(); found = links_.find(id)) {
    if (!read_some(found->second, now)) return;
  }
}

/// True if there may be more.
bool Introductions::read_some(Link& link, Time now) {
  Bytes buffer(wire::kMaxJoiningPacket);
  size_t wanted = buffer.size();
  if (!link.local) {
    wanted = wire::kJoiningHeaderBytes - link.received.size();
    if (link.received.size() >= wire::kJoiningHeaderBytes) {
      const auto whole =
          wire::joining_packet_bytes(BytesView(link.received).first<wire::kJoiningHeaderBytes>());
      wanted = whole.ok() ? *whole - link.received.size() : 0;
    }
  }
  io::Received received;
  if (wanted > 0)
    received = io::receive_message(link.socket.get(), std::span(buffer).first(wanted));
  if (received.would_block) return false;
  link.received.insert(link.received.end(), buffer.begin(),
                       buffer.begin() + static_cast<std::ptrdiff_t>(received.bytes));
  if (wanted > 0 && !received.closed && !received.truncated &&
      take_packet(link, std::move(received.descriptors), now)) {
    return true;
  }
  drop(link.id, now);
  return false;
}

/// False if the bytes are none that a rank sends.
bool Introductions::take_packet(Link& link, std::vector<io::Fd> descriptors, Time now) {
  if (link.received.size() < wire::kJoiningHeaderBytes) return !link.local;
  const auto whole =
      wire::joining_packet_bytes(BytesView(link.received).first<wire::kJoiningHeaderBytes>());
  if (!whole.ok()) return false;
  if (link.received.size() < *whole) return !link.local;
  const auto packet = wire::decode_joining_packet(std::exchange(link.received, {}));
  if (!packet.ok()) return false;
  hear(link, *packet, std::move(descriptors), now);
  return true;
}

void Introductions::hear(const Link& link, const JoiningPacket& packet,
                         std::vector<io::Fd> descriptors, Time now) {
  Circle* circle = circle_of(packet.of_host);
  if (circle == nullptr) {
    if (early_.size() < kMostEarly) early_.push_back({link.id, packet, std::move(descriptors)});
    return;
  }
  const int32_t from = circle->index_of(link.rank);
  if (from < 0) return;
  if (packet.kind == JoiningPacket::Kind::kKnown) {
    if (!link.dialled_here) return;
    circle->joining.known(from, packet.round, now);
    return drop(link.id, now);
  }
  if (link.dialled_here) return;
  size_t next = 0;
  for (const wire::Introduction& one : packet.introductions) {
    const int32_t index = circle->index_of(one.rank);
    if (index < 0 || next + one.descriptors > descriptors.size()) return;
    auto& kept = descriptors_[static_cast<size_t>(one.rank)];
    const bool keep = kept.empty() && one.rank != options_.rank;
    for (size_t i = 0; i < one.descriptors; ++i, ++next) {
      if (keep) kept.push_back(std::move(descriptors[next]));
    }
    learn(one.rank, one.record, now);
    circle->joining.introduced(from, packet.round, index, one.record, now);
  }
  circle->joining.told(from, packet.round, now);
}

void Introductions::abandon_in_child() {
  for (auto& [id, link] : links_) link.socket.reset();
  for (auto& [rank, dialer] : dialers_) dialer.abandon_in_child();
  for (auto& [rank, process] : watched_) process.reset();
  for (auto& descriptors : descriptors_) descriptors.clear();
  ::close(epoll_.fd());
}

}  // namespace corro::transport
