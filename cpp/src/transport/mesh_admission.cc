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
                              wire::Purpose purpose, std::vector<int> descriptors) {
  const wire::HandshakeIdentity identity = identity_of(options);
  const auto hello =
      wire::encode_local_hello({.purpose = purpose,
                                .job = identity.job,
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
  return std::optional(LocalGreeting{.from = hello.from,
                                     .purpose = hello.purpose,
                                     .descriptors = std::move(received.descriptors)});
}

Admission::Admission(const MeshOptions& options, const Doors& doors, io::Epoll& epoll,
                     Wanted wanted)
    : options_(options),
      doors_(doors),
      epoll_(epoll),
      wanted_(std::move(wanted)),
      most_pending_(kMostStrangers + static_cast<size_t>(options.size)),
      next_id_(kFirstPending) {}

Status Admission::start() {
  if (doors_.unix_listener.valid())
    CORRO_TRY(epoll_.add(doors_.unix_listener.get(), EPOLLIN, kUnixListener));
  if (!doors_.tcp_listener.valid()) return {};
  return epoll_.add(doors_.tcp_listener.get(), EPOLLIN, kTcpListener);
}

void Admission::pause() {
  if (doors_.unix_listener.valid()) epoll_.remove(doors_.unix_listener.get());
  if (doors_.tcp_listener.valid()) epoll_.remove(doors_.tcp_listener.get());
}

Status Admission::on_event(uint64_t data, Time now) {
  if (data == kUnixListener) return accept_all(doors_.unix_listener, false, now);
  if (data == kTcpListener) return accept_all(doors_.tcp_listener, true, now);
  const auto found = pending_.find(data);
  if (found == pending_.end()) return {};
  CORRO_ASSIGN(const Verdict verdict, advance(found->second));
  if (verdict == Verdict::kRefuse) refuse(data);
  if (verdict == Verdict::kUnwanted) hang_up(data);
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
        options_.metrics.add(obs::Metric::kHandshakesRefused);
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
    // A rank hangs up if the other one of its pair was faster.
    if (received.closed) return handshake.peer_rank() < 0 ? Verdict::kRefuse : Verdict::kUnwanted;
    if (!handshake.feed(std::span(buffer).first(received.bytes)).ok()) return Verdict::kRefuse;
    const Bytes answer = handshake.take_output();
    if (answer.empty()) continue;
    // The buffer of a connection that has sent nothing yet has room for 64 bytes.
    const auto sent = io::send_message(pending.fd.get(), answer);
    if (!sent.ok() || !*sent) return Verdict::kRefuse;
  }
  return admit_tcp(pending);
}

Admission::Verdict Admission::admit_tcp(Pending& pending) {
  const int32_t rank = pending.handshake->peer_rank();
  const wire::Purpose purpose = pending.handshake->purpose();
  const Verdict verdict = judge(rank, purpose);
  if (verdict != Verdict::kJoined) return verdict;
  const io::TcpOptions options{.detect_lost_host = purpose == wire::Purpose::kLiveness};
  if (!io::configure_tcp(pending.fd.get(), options).ok()) return Verdict::kRefuse;
  const auto sent = io::send_message(pending.fd.get(), wire::kAdmitted);
  if (!sent.ok() || !*sent) return Verdict::kRefuse;
  epoll_.remove(pending.fd.get());
  JoinedPeer& joined = joined_.emplace_back(JoinedPeer{
      .rank = rank, .purpose = purpose, .local = false, .stream = nullptr, .socket = {}});
  if (purpose == wire::Purpose::kStream) {
    joined.stream = std::make_unique<TcpStream>(std::move(pending.fd));
  } else {
    joined.socket = std::move(pending.fd);
  }
  return Verdict::kJoined;
}

Result<Admission::Verdict> Admission::advance_local(Pending& pending) {
  auto greeting = receive_local_hello(options_, pending.fd.get());
  if (!greeting.ok()) return Verdict::kRefuse;
  if (!greeting->has_value()) return Verdict::kWait;
  const int32_t rank = (*greeting)->from;
  const wire::Purpose purpose = (*greeting)->purpose;
  std::vector<io::Fd>& descriptors = (*greeting)->descriptors;
  JoinedPeer joined{
      .rank = rank, .purpose = purpose, .local = true, .stream = nullptr, .socket = {}};
  const size_t expected = purpose == wire::Purpose::kStream ? 1 : 0;
  if (descriptors.size() != expected) return Verdict::kRefuse;
  const Verdict verdict = judge(rank, purpose);
  if (verdict != Verdict::kJoined) return verdict;
  if (purpose == wire::Purpose::kStream) {
    const int32_t pid = io::peer_credentials(pending.fd.get()).value().pid;
    auto stream = ShmStream::attach(std::move(descriptors.front()),
                                    fmt::format("rank {} (pid {})", rank, pid));
    // No room for a rank of this job is this rank's own failure; memory that is none is not.
    if (stream.status().code() == Code::kResourceExhausted) {
      return stream.status().with_context(fmt::format("connect: rank {}", rank));
    }
    if (!stream.ok()) return Verdict::kRefuse;
    joined.stream = std::move(stream).value();
  }
  const auto sent = send_local_hello(options_, pending.fd.get(), rank, purpose, {});
  if (!sent.ok() || !*sent) return Verdict::kRefuse;
  epoll_.remove(pending.fd.get());
  if (purpose != wire::Purpose::kStream) joined.socket = std::move(pending.fd);
  joined_.push_back(std::move(joined));
  return Verdict::kJoined;
}

/// kJoined if the rank may come in. A rank of the job that is not wanted is no stranger.
Admission::Verdict Admission::judge(int32_t rank, wire::Purpose purpose) const {
  if (rank < 0 || rank >= options_.size || rank == options_.rank) return Verdict::kRefuse;
  return wanted_(rank, purpose) ? Verdict::kJoined : Verdict::kUnwanted;
}

void Admission::refuse(uint64_t id) {
  hang_up(id);
  options_.metrics.add(obs::Metric::kHandshakesRefused);
}

void Admission::hang_up(uint64_t id) {
  const auto found = pending_.find(id);
  epoll_.remove(found->second.fd.get());
  pending_.erase(found);
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
