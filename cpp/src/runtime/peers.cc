#include "runtime/peers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace corro::runtime {
namespace {

/// How often close() tries to send what is left.
constexpr int kMostFlushes = 1000;

}  // namespace

Peers::Entry& Peers::entry(MemberId member) const {
  const auto index = static_cast<size_t>(member);
  CORRO_CHECK(index < entries_.size() && entries_[index] != nullptr, member);
  return *entries_[index];
}

void Peers::add(MemberId member, EnginePeer peer) {
  const auto index = static_cast<size_t>(member);
  if (entries_.size() <= index) entries_.resize(index + 1);
  CORRO_CHECK(entries_[index] == nullptr, member);
  entries_[index] = std::make_unique<Entry>();
  Entry& added = *entries_[index];
  added.peer = std::move(peer);
  if (added.peer.stream == nullptr && (member == own_ || !connects_)) return;
  const bool has_stream = added.peer.stream != nullptr;
  if (has_stream) added.fd = added.peer.stream->poll_fd();
  added.endpoint = std::make_unique<transport::Endpoint>(
      std::move(added.peer.stream),
      [this, member](const wire::Control& control) { hear(member, control); },
      transport::EndpointLimits{},
      [this, member](const transport::MessageKey& key, const SignatureBits& signature) {
        events_.emplace_back(PeerStray{member, key, signature});
      },
      metrics_);
  if (has_stream) added.endpoint->count_on(links_.open(member));
  added.endpoint->start_epoch(epoch_);
}

void Peers::connect(MemberId member, std::unique_ptr<transport::Stream> stream) {
  Entry& one = entry(member);
  // Of this host's members each has found a goodbye in the segment.
  if (left_ && one.peer.segment == nullptr) return turn_away(std::move(stream));
  if (one.endpoint == nullptr || one.endpoint->connected()) return stream->close();
  one.fd = stream->poll_fd();
  one.readable = true;
  one.endpoint->count_on(links_.open(member));
  one.endpoint->connect(std::move(stream));
}

/// A stream that only ends would say that this member was lost.
void Peers::turn_away(std::unique_ptr<transport::Stream> stream) {
  transport::Endpoint endpoint(std::move(stream), [](const wire::Control& /*control*/) {});
  endpoint.send_control({.kind = wire::ControlKind::kGoodbye});
  for (int i = 0; i < kMostFlushes && endpoint.has_unsent(); ++i) (void)endpoint.progress();
}

void Peers::remove(MemberId member) {
  (void)entry(member);
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(next_event_));
  next_event_ = 0;
  std::erase_if(events_, [member](const PeerEvent& event) {
    return std::visit([](const auto& one) { return one.who(); }, event) == member;
  });
  entries_[static_cast<size_t>(member)].reset();
}

void Peers::hear(MemberId from, const wire::Control& control) {
  if (control.kind == wire::ControlKind::kGoodbye) {
    entry(from).said_goodbye = true;
    events_.emplace_back(PeerDeparted{from});
  } else if (control.lane.epoch >= epoch_) {
    events_.emplace_back(PeerSaid{from, control});
  }
}

bool Peers::poll(Look look) {
  bool asked = ask_readable != nullptr;
  if (asked && look == Look::kOwing) {
    // One look at a descriptor is a system call, and so is the question about all.
    asked = std::ranges::count_if(entries_, [](const auto& entry) {
              return entry != nullptr && entry->owes_by_descriptor();
            }) > 1;
  }
  if (asked) ask_readable(*this);
  bool moved = false;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto member = static_cast<MemberId>(i);
    Entry* entry = entries_[i].get();
    if (entry == nullptr || entry->endpoint == nullptr || entry->ended) continue;
    if (!entry->endpoint->connected()) {
      if (entry->begins_to_want_stream()) wanted_.push_back(member);
      if (look == Look::kReadable) look_for_goodbye(member, *entry);
      continue;
    }
    const bool answered = asked && entry->fd >= 0;  // A look at memory needs no answer.
    const bool wanted = entry->readable || entry->endpoint->has_unsent() ||
                        (!answered && (look == Look::kReadable || entry->endpoint->awaits()));
    if (wanted) moved = look_at(member, *entry) || moved;
  }
  return moved;
}

bool Peers::look_at(MemberId member, Entry& entry) {
  transport::Endpoint& endpoint = *entry.endpoint;
  const bool moved = endpoint.progress();
  if (!moved) entry.readable = false;
  if (!endpoint.closed() || entry.said_goodbye) return moved;
  look_for_goodbye(member, entry);
  if (!entry.said_goodbye) lose(member, endpoint.describe());
  return true;
}

bool Peers::Entry::begins_to_want_stream() {
  if (wanted) return false;
  const bool awaits_far = peer.segment == nullptr && endpoint->awaits();
  wanted = awaits_far || endpoint->has_unsent();
  return wanted;
}

/// A peer of this host that has left without a stream to say so.
void Peers::look_for_goodbye(MemberId member, Entry& entry) {
  if (entry.said_goodbye || entry.peer.segment == nullptr ||
      !entry.peer.segment->header().has_said_goodbye_to(own_)) {
    return;
  }
  entry.said_goodbye = true;
  entry.endpoint->close();  // What is queued for it goes nowhere.
  events_.emplace_back(PeerDeparted{member});
}

bool Peers::depart_unmet(MemberId member) {
  Entry& one = entry(member);
  if (one.said_goodbye) return true;
  if (one.ended || one.endpoint->connected() || one.endpoint->awaits()) return false;
  one.said_goodbye = true;
  one.endpoint->close();
  events_.emplace_back(PeerDeparted{member});
  return true;
}

bool Peers::poll(MemberId member) {
  Entry& one = entry(member);
  if (one.endpoint == nullptr || one.ended) return false;
  const bool moved = one.endpoint->progress();
  if (!moved) look_for_goodbye(member, one);
  return moved;
}

bool Peers::present(MemberId member) const {
  const auto index = static_cast<size_t>(member);
  return index < entries_.size() && entries_[index] != nullptr && !entries_[index]->departed &&
         entries_[index]->lost.empty();
}

void Peers::mark_readable(MemberId member) {
  Entry* readable = entries_[static_cast<size_t>(member)].get();
  if (readable != nullptr) readable->readable = true;
}

std::optional<PeerEvent> Peers::take_event() {
  if (next_event_ == events_.size()) {
    events_.clear();
    next_event_ = 0;
    return std::nullopt;
  }
  PeerEvent event = std::move(events_[next_event_++]);
  if (const auto* lost = std::get_if<PeerLost>(&event)) entry(lost->member).lost = lost->how;
  if (const auto* left = std::get_if<PeerDeparted>(&event)) entry(left->member).departed = true;
  return event;
}

void Peers::lose(MemberId member, const std::string& how) {
  Entry& ended = entry(member);
  if (std::exchange(ended.ended, true)) return;
  if (ended.endpoint != nullptr) ended.endpoint->close();
  events_.emplace_back(PeerLost{member, how});
}

bool Peers::tell(MemberId member, const wire::Control& control) {
  transport::Endpoint* endpoint = entry(member).endpoint.get();
  if (endpoint == nullptr || endpoint->closed()) return false;
  endpoint->send_control(control);
  return true;
}

bool Peers::unsent() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry != nullptr && entry->endpoint != nullptr && entry->endpoint->has_unsent();
  });
}

void Peers::start_epoch(uint32_t epoch) {
  epoch_ = epoch;
  for (const auto& entry : entries_) {
    if (entry != nullptr && entry->endpoint != nullptr) entry->endpoint->start_epoch(epoch);
  }
}

std::vector<MemberId> Peers::close(collective::SegmentHeader& own) {
  left_ = true;
  std::vector<MemberId> asleep;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto member = static_cast<MemberId>(i);
    const Entry* one = entries_[i].get();
    if (one == nullptr || member == own_) continue;
    if (one->endpoint != nullptr && one->endpoint->connected()) {
      (void)tell(member, {.kind = wire::ControlKind::kGoodbye});
    } else if (one->peer.segment != nullptr) {
      own.say_goodbye_to(member);
      const auto& sleeping = one->peer.segment->header().sleeping;
      if (sleeping.load(std::memory_order_seq_cst) >= collective::kAsleep) asleep.push_back(member);
    }
    if (one->endpoint != nullptr && !one->endpoint->connected()) one->endpoint->close();
  }
  for (int i = 0; i < kMostFlushes && unsent(); ++i) (void)poll(Look::kReadable);
  for (const auto& entry : entries_) {
    if (entry != nullptr && entry->endpoint != nullptr && !entry->endpoint->closed())
      entry->endpoint->close();
  }
  return asleep;
}

void Peers::close_descriptors() {
  for (const auto& entry : entries_) {
    if (entry != nullptr && entry->endpoint != nullptr) entry->endpoint->close_in_child();
  }
}

}  // namespace corro::runtime
