#include "transport/mesh_admission.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/shm_stream.h"
#include "transport/tcp_stream.h"

namespace corro::transport {
namespace {

constexpr uint64_t kUnixListener = 0;
constexpr uint64_t kTcpListener = 1;
constexpr uint64_t kFirstPending = 2;
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr size_t kMostFromStranger = 128;
constexpr size_t kMostStrangers = 256;
constexpr int kAcceptBatch = 64;

}  // namespace

Result<bool> send_local_hello(const MeshOptions& options, int socket, int32_t to,
                              std::vector<int> descriptors) {
  const wire::HandshakeIdentity identity = identity_of(options);
  const auto hello =
      wire::encode_local_hello({.job = identity.job,
                                .epoch = identity.epoch,
                                .from = options.rank,
                                .to = to,
                                .descriptors = static_cast<uint32_t>(descriptors.size())});
  return io::send_message(socket, hello, descriptors);
}

Result<std::optional<LocalGreeting>> receive_local_hello(const MeshOptions& options, int socket) {
  std::array<std::byte, kMostFromStranger> packet;
  io::Received received = io::receive_message(socket, packet);
  if (received.would_block) return std::optional<LocalGreeting>();
  if (received.closed) return Status(Code::kUnavailable, "hung up");
  CORRO_ASSIGN(const wire::LocalHello hello,
               wire::decode_local_hello(std::span(packet).first(received.bytes)));
  const wire::HandshakeIdentity identity = identity_of(options);
  if (received.truncated || hello.job != identity.job || hello.epoch != identity.epoch ||
      hello.to != options.rank || hello.descriptors != received.descriptors.size()) {
    return Status(Code::kUnauthenticated, "a hello of another job, or to another rank");
  }
  return std::optional(
      LocalGreeting{.from = hello.from, .descriptors = std::move(received.descriptors)});
}

Admission::Admission(const MeshOptions& options, const Rendezvous& found, io::Epoll& epoll)
    : options_(options),
      found_(found),
      epoll_(epoll),
      most_pending_(kMostStrangers + static_cast<size_t>(options.size)),
      next_id_(kFirstPending) {}

Status Admission::start() {
  CORRO_TRY(epoll_.add(found_.unix_listener.get(), EPOLLIN, kUnixListener));
  if (!found_.tcp_listener.valid()) return {};
  return epoll_.add(found_.tcp_listener.get(), EPOLLIN, kTcpListener);
}

void Admission::pause() {
  epoll_.remove(found_.unix_listener.get());
  if (found_.tcp_listener.valid()) epoll_.remove(found_.tcp_listener.get());
}

Status Admission::on_event(uint64_t data, Time now) {
  if (data == kUnixListener) return accept_all(found_.unix_listener, false, now);
  if (data == kTcpListener) return accept_all(found_.tcp_listener, true, now);
  const auto found = pending_.find(data);
  if (found == pending_.end()) return {};
  CORRO_ASSIGN(const Verdict verdict, advance(found->second));
  if (verdict == Verdict::kRefuse) refuse(data);
  if (verdict == Verdict::kJoined) pending_.erase(found);
  return {};
}

Status Admission::accept_all(const io::Fd& listener, bool tcp, Time now) {
  for (int i = 0; i < kAcceptBatch; ++i) {
    auto accepted = io::accept_connection(listener.get());
    if (accepted.status().code() == Code::kResourceExhausted && !pending_.empty()) {
      refuse(pending_.begin()->first);
      continue;
    }
    CORRO_ASSIGN(io::Fd fd, std::move(accepted));
    if (!fd.valid()) return {};
    Pending pending{.fd = std::move(fd), .expires = now + kPatience, .handshake = std::nullopt};
    if (tcp) {
      pending.handshake.emplace(identity_of(options_), *options_.secret);
    } else {
      const auto peer = io::peer_credentials(pending.fd.get());
      if (!peer.ok() || peer->uid != geteuid()) {
        ++refused_;
        continue;
      }
    }
    if (pending_.size() >= most_pending_) refuse(pending_.begin()->first);
    const uint64_t id = next_id_++;
    CORRO_TRY(epoll_.add(pending.fd.get(), EPOLLIN, id));
    pending_.emplace(id, std::move(pending));
  }
  return {};
}

Result<Admission::Verdict> Admission::advance(Pending& pending) {
  return pending.handshake ? advance_tcp(pending) : advance_local(pending);
}

Result<Admission::Verdict> Admission::advance_tcp(Pending& pending) {
  wire::ServerHandshake& handshake = *pending.handshake;
  std::array<std::byte, kMostFromStranger> buffer;
  while (!handshake.done()) {
    const io::Received received =
        io::receive_message(pending.fd.get(), std::span(buffer).first(handshake.wanted()));
    if (received.would_block) return Verdict::kWait;
    if (received.closed) return Verdict::kRefuse;
    if (!handshake.feed(std::span(buffer).first(received.bytes)).ok()) return Verdict::kRefuse;
    const Bytes answer = handshake.take_output();
    if (answer.empty()) continue;
    // The buffer of a connection that has sent nothing yet has room for 64 bytes.
    const auto sent = io::send_message(pending.fd.get(), answer);
    if (!sent.ok() || !*sent) return Verdict::kRefuse;
  }
  if (handshake.purpose() == wire::Purpose::kLiveness)
    return admit_for_liveness(pending, handshake.peer_rank());
  if (!expects(handshake.peer_rank(), true)) return Verdict::kRefuse;
  if (!io::configure_tcp(pending.fd.get()).ok()) return Verdict::kRefuse;
  epoll_.remove(pending.fd.get());
  joined_.push_back({.rank = handshake.peer_rank(),
                     .stream = std::make_unique<TcpStream>(std::move(pending.fd)),
                     .descriptors = {},
                     .liveness = {}});
  return Verdict::kJoined;
}

Result<Admission::Verdict> Admission::advance_local(Pending& pending) {
  auto greeting = receive_local_hello(options_, pending.fd.get());
  if (!greeting.ok()) return Verdict::kRefuse;
  if (!greeting->has_value()) return Verdict::kWait;
  const int32_t rank = (*greeting)->from;
  std::vector<io::Fd>& descriptors = (*greeting)->descriptors;
  if (descriptors.empty()) {
    const auto answered = send_local_hello(options_, pending.fd.get(), rank, {});
    if (!answered.ok() || !*answered) return Verdict::kRefuse;
    return admit_for_liveness(pending, rank);
  }
  if (!expects(rank, false)) return Verdict::kRefuse;
  const int32_t pid = found_.places[static_cast<size_t>(rank)].record.pid;
  auto stream =
      ShmStream::attach(descriptors.front().get(), fmt::format("rank {} (pid {})", rank, pid));
  // No room for a rank of this job is this rank's own failure; memory that is none is not.
  if (stream.status().code() == Code::kResourceExhausted) {
    return stream.status().with_context(fmt::format("connect: rank {}", rank));
  }
  if (!stream.ok()) return Verdict::kRefuse;
  descriptors.erase(descriptors.begin());
  const auto sent = send_local_hello(options_, pending.fd.get(), rank, options_.shared_descriptors);
  if (!sent.ok() || !*sent) return Verdict::kRefuse;
  epoll_.remove(pending.fd.get());
  joined_.push_back({.rank = rank,
                     .stream = std::move(stream).value(),
                     .descriptors = std::move(descriptors),
                     .liveness = {}});
  return Verdict::kJoined;
}

Admission::Verdict Admission::admit_for_liveness(Pending& pending, int32_t rank) {
  if (rank < 0 || rank >= options_.size || rank == options_.rank) return Verdict::kRefuse;
  if (pending.handshake && !io::configure_tcp(pending.fd.get(), {.detect_lost_host = true}).ok())
    return Verdict::kRefuse;
  epoll_.remove(pending.fd.get());
  joined_.push_back(
      {.rank = rank, .stream = nullptr, .descriptors = {}, .liveness = std::move(pending.fd)});
  return Verdict::kJoined;
}

bool Admission::expects(int32_t rank, bool tcp) const {
  return rank >= 0 && rank < options_.size && dials(rank, options_.rank) &&
         found_.places[static_cast<size_t>(rank)].over_tcp == tcp;
}

void Admission::refuse(uint64_t id) {
  const auto found = pending_.find(id);
  epoll_.remove(found->second.fd.get());
  pending_.erase(found);
  ++refused_;
}

void Admission::expire(Time now) {
  // Ids grow with age, and everybody has the same time.
  while (!pending_.empty() && pending_.begin()->second.expires <= now) {
    refuse(pending_.begin()->first);
  }
}

Time Admission::next_expiry() const {
  return pending_.empty() ? Time::never() : pending_.begin()->second.expires;
}

}  // namespace corro::transport
