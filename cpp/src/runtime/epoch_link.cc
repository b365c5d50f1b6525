#include "runtime/epoch_link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "io/socket.h"
#include "wire/agent_bootstrap.h"

namespace corro::runtime {
namespace {

using wire::AgentMessage;
using wire::AgentMessageKind;

constexpr Duration kPatience = std::chrono::seconds(10);     ///< For a packet to be taken.
constexpr Duration kPause = std::chrono::milliseconds(100);  ///< Between two looks at signals.

Status gone() { return {Code::kUnavailable, "the agent is gone: no epoch comes any more"}; }

}  // namespace

Result<std::shared_ptr<EpochLink>> EpochLink::connect(const std::string& agent,
                                                      const std::string& member, bool joins) {
  CORRO_ASSIGN(io::Fd fd, wire::connect_to_agent(agent));
  auto link = std::shared_ptr<EpochLink>(new EpochLink(std::move(fd), joins));
  CORRO_TRY(link->send({.kind = AgentMessageKind::kFollow, .key = member, .value = {}},
                       monotonic_now() + kPatience));
  return link;
}

Status EpochLink::send(const AgentMessage& message, Time deadline) {
  const Bytes packet = wire::encode_agent_message(message);
  while (true) {
    CORRO_ASSIGN(const bool sent, io::send_message(fd_.get(), packet));
    if (sent) return {};
    if (!io::wait_ready(fd_.get(), POLLOUT, deadline))
      return {Code::kDeadlineExceeded, "the agent takes nothing"};
  }
}

Status EpochLink::say_ready(uint32_t epoch, const EpochEnd& end, Time deadline) {
  ByteWriter value;
  value.write(end.steps);
  value.write(end.lost);
  return send(
      {.kind = AgentMessageKind::kReady, .request = epoch, .key = {}, .value = value.take()},
      deadline);
}

Status EpochLink::leave() {
  return send({.kind = AgentMessageKind::kLeave, .key = {}, .value = {}},
              monotonic_now() + kPatience);
}

bool EpochLink::poll() {
  std::array<std::byte, wire::kMaxAgentMessage> packet;
  auto heard = heard_.lock();
  while (!heard->gone) {
    const io::Received received = io::receive_message(fd_.get(), packet);
    if (received.would_block) return true;
    const auto message =
        wire::decode_agent_message(std::span(packet).first(received.closed ? 0 : received.bytes));
    heard->gone = received.closed || received.truncated || !message.ok();
    if (!heard->gone) take(*message, *heard);
  }
  return false;
}

void EpochLink::take(const AgentMessage& message, Heard& heard) {
  if (message.kind == AgentMessageKind::kReply && message.code != Code::kOk) {
    heard.refused = {message.code,
                     {reinterpret_cast<const char*>(message.value.data()), message.value.size()}};
    return;
  }
  const uint32_t epoch = message.request;
  if (message.kind == AgentMessageKind::kPrepare && epoch > heard.prepared) {
    heard.prepared = epoch;
    if (message.code == Code::kAborted) heard.broken_off = epoch;
    heard.why.assign(reinterpret_cast<const char*>(message.value.data()), message.value.size());
  }
  uint32_t size = 0;
  if (message.kind != AgentMessageKind::kCommit || message.value.size() != sizeof(size)) return;
  std::memcpy(&size, message.value.data(), sizeof(size));
  heard.prepared = std::max(heard.prepared, epoch);
  heard.begun = EpochPlace{.epoch = epoch,
                           .rank = message.rank,
                           .size = static_cast<int32_t>(size),
                           .last = message.code == Code::kCancelled};
}

Result<EpochPlace> EpochLink::next(const EpochEnd& end, Time deadline,
                                   const std::function<bool()>& interrupted) {
  uint32_t answered = 0;  // The newest PREPARE that has its READY.
  bool unasked = end.lost >= 0;
  if (std::exchange(joins_, false)) CORRO_TRY(say_ready(0, {}, deadline));
  while (true) {
    const bool there = poll();
    const Heard heard = *heard_.lock();
    // It is entered even if the next one is planned already: the others do the same.
    if (heard.begun && heard.begun->epoch > heard.last && heard.begun->epoch >= heard.broken_off) {
      heard_.lock()->last = heard.begun->epoch;
      return *heard.begun;
    }
    if (!there) return heard.refused.ok() ? gone() : heard.refused;
    if (heard.prepared > std::max(answered, heard.last)) {
      answered = heard.prepared;
      unasked = false;
      CORRO_TRY(say_ready(answered, end, deadline));
      continue;
    }
    if (std::exchange(unasked, false)) CORRO_TRY(say_ready(heard.last, end, deadline));
    const Time now = monotonic_now();
    if (now >= deadline) return Status(Code::kDeadlineExceeded, "no epoch has begun in time");
    if (interrupted && interrupted()) return Status(Code::kCancelled, "interrupted");
    (void)io::wait_ready(fd_.get(), POLLIN, std::min(deadline, now + kPause));
  }
}

}  // namespace corro::runtime
