#include "wire/agent_bootstrap.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "io/socket.h"

namespace corro::wire {
namespace {

Status gone(const std::string& name) {
  return {Code::kUnavailable,
          fmt::format("agent {}: the connection is closed: is the launcher still running?", name)};
}

/// Older agents say nothing to a rank whose messages are of another version.
Status turned_away(const std::string& name) {
  return {Code::kUnavailable,
          fmt::format("agent {}: it has ended the connection without an answer: has the launcher "
                      "ended, or is its corro another one than this rank's, which has message "
                      "version {}?",
                      name, kAgentMessagesVersion)};
}

Status late(const std::string& name) {
  return {Code::kDeadlineExceeded, fmt::format("agent {}: no answer in time", name)};
}

/// What an agent says, who may be of another release.
Result<AgentMessage> decode(BytesView packet) {
  if (const auto version = other_version_of(packet))
    return different_versions(kAgentMessagesVersion, *version);
  return decode_agent_message(packet);
}

std::string text_of(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<io::Fd> connect_to_agent(const std::string& name) {
  auto connected = io::connect_abstract(name);
  if (!connected.ok()) {
    return connected.status().with_context(
        "CORRO_AGENT: no agent there, is the launcher still running?");
  }
  CORRO_ASSIGN(const io::PeerCredentials peer, io::peer_credentials(connected->get()));
  if (peer.uid != geteuid()) {
    return Status(Code::kPermissionDenied,
                  fmt::format("agent @{}: belongs to user {}, this process to user {}: refused",
                              name, peer.uid, geteuid()));
  }
  return connected;
}

Result<std::unique_ptr<AgentBootstrap>> AgentBootstrap::connect(const Options& options) {
  CORRO_ASSIGN(io::Fd connected, connect_to_agent(options.name));
  auto self = std::unique_ptr<AgentBootstrap>(
      new AgentBootstrap(std::move(connected), "@" + options.name, false));
  CORRO_TRY(self->greet(options));
  return self;
}

Result<std::unique_ptr<AgentBootstrap>> AgentBootstrap::greet_over(io::Fd connection, int32_t rank,
                                                                   const Secret& secret,
                                                                   Time deadline) {
  CORRO_ASSIGN(const auto there, io::remote_address(connection.get()));
  auto self = std::unique_ptr<AgentBootstrap>(
      new AgentBootstrap(std::move(connection), "at " + there.to_string(), true));
  self->secret_ = secret;
  CORRO_TRY(self->greet({.name = {}, .rank = rank, .descriptors = {}, .deadline = deadline}));
  return self;
}

Status AgentBootstrap::greet(const Options& options) {
  CORRO_TRY(send({.kind = AgentMessageKind::kHello, .rank = options.rank, .key = {}, .value = {}},
                 options.descriptors, options.deadline));
  const auto answered = receive(options.deadline);
  if (answered.status().code() == Code::kUnavailable) return turned_away(name_);
  CORRO_ASSIGN(const AgentMessage answer, answered);
  if (answer.kind == AgentMessageKind::kReply && answer.code != Code::kOk) {
    return {answer.code, fmt::format("agent {}: {}", name_, text_of(answer.value))};
  }
  const size_t expected = stream_ ? 0 : secret_.size();
  if (answer.kind != AgentMessageKind::kWelcome || answer.value.size() != expected) {
    return {Code::kInvalidArgument,
            fmt::format("agent {}: not a welcome: another version of corro?", name_)};
  }
  if (!stream_) std::memcpy(secret_.data(), answer.value.data(), secret_.size());
  job_ = answer.key;
  return {};
}

Status AgentBootstrap::send(const AgentMessage& message, std::span<const int> descriptors,
                            Time deadline) {
  const Bytes packet = encode_agent_message(message);
  if (stream_) return send_stream(packet, deadline);
  while (true) {
    const auto sent = io::send_message(fd_.get(), packet, descriptors);
    if (!sent.ok()) return gone(name_);
    if (*sent) return {};
    if (!io::wait_ready(fd_.get(), POLLOUT, deadline)) return late(name_);
  }
}

Status AgentBootstrap::send_stream(BytesView packet, Time deadline) {
  while (true) {
    const auto sent = io::send_some(fd_.get(), packet);
    if (!sent.ok()) return gone(name_);
    packet = packet.subspan(*sent);
    if (packet.empty()) return {};
    if (!io::wait_ready(fd_.get(), POLLOUT, deadline)) return late(name_);
  }
}

Result<std::optional<AgentMessage>> AgentBootstrap::take_arrived() {
  CORRO_ASSIGN(const size_t wanted, agent_packet_bytes(arrived_));
  if (arrived_.size() < wanted) return std::optional<AgentMessage>();
  CORRO_ASSIGN(auto message, decode(BytesView(arrived_).first(wanted)));
  arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(wanted));
  return std::optional(std::move(message));
}

/// The next message; nothing if none has come.
Result<std::optional<AgentMessage>> AgentBootstrap::receive_now() {
  std::array<std::byte, kMaxAgentMessage> packet;
  while (true) {
    if (stream_) {
      CORRO_ASSIGN(auto message, take_arrived());
      if (message) return message;
    }
    const io::Received received = io::receive_message(fd_.get(), packet);
    if (received.closed || received.truncated) return gone(name_);
    if (received.would_block) return std::optional<AgentMessage>();
    const auto bytes = std::span(packet).first(received.bytes);
    if (stream_) {
      arrived_.insert(arrived_.end(), bytes.begin(), bytes.end());
      continue;
    }
    CORRO_ASSIGN(auto message, decode(bytes));
    return std::optional(std::move(message));
  }
}

Result<AgentMessage> AgentBootstrap::receive(Time deadline) {
  while (true) {
    CORRO_ASSIGN(auto message, receive_now());
    if (message) return std::move(*message);
    const Time now = monotonic_now();
    if (now >= deadline) return late(name_);
    if (!io::wait_ready(fd_.get(), POLLIN, std::min(deadline, now + kInterruptPause)))
      CORRO_TRY(check_interrupted());
  }
}

Result<uint32_t> AgentBootstrap::request(AgentMessage message, Time deadline) {
  message.request = next_request_++;
  CORRO_TRY(send(message, {}, deadline));
  return message.request;
}

Result<Bytes> AgentBootstrap::reply_to(uint32_t request, Time deadline) {
  while (!replies_.contains(request)) {
    CORRO_ASSIGN(AgentMessage reply, receive(deadline));
    if (reply.kind == AgentMessageKind::kReply) replies_.emplace(reply.request, std::move(reply));
  }
  AgentMessage reply = std::move(replies_.extract(request).mapped());
  if (reply.code == Code::kOk) return std::move(reply.value);
  return Status(reply.code, text_of(reply.value));
}

Status AgentBootstrap::put(std::string_view key, BytesView value) {
  CORRO_TRY(check_bootstrap_put(key, value));
  constexpr auto kPatience = std::chrono::seconds(30);
  const Time deadline = monotonic_now() + kPatience;
  const std::string context = fmt::format("put {}", key);
  const auto number = request({.kind = AgentMessageKind::kPut,
                               .key = std::string(key),
                               .value = Bytes(value.begin(), value.end())},
                              deadline);
  if (!number.ok()) return number.status().with_context(context);
  return reply_to(*number, deadline).status().with_context(context);
}

Result<Bytes> AgentBootstrap::get(std::string_view key, Time deadline) {
  CORRO_TRY(check_bootstrap_key(key));
  const std::string context = fmt::format("get {}", key);
  auto asked = asked_.find(key);
  if (asked == asked_.end()) {
    const auto number =
        request({.kind = AgentMessageKind::kGet, .key = std::string(key), .value = {}}, deadline);
    if (!number.ok()) return number.status().with_context(context);
    asked = asked_.emplace(key, *number).first;
  }
  auto found = reply_to(asked->second, deadline);
  if (found.status().code() != Code::kDeadlineExceeded) asked_.erase(asked);
  if (found.ok() || found.status().code() == Code::kNotFound) return found;
  return found.status().with_context(context);
}

}  // namespace corro::wire
