#include "wire/agent_service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "io/event.h"
#include "io/socket.h"
#include "wire/agent_protocol.h"
#include "wire/digest.h"
#include "wire/server_number.h"

namespace corro::wire {
namespace {

constexpr uint64_t kListener = 0;
constexpr size_t kBatch = 64;
/// More than a worker that reads its replies can ever have; one that passes them loses its
/// connection.
constexpr size_t kMaxUnsent = 64;
constexpr size_t kMaxWaiting = 256;
constexpr size_t kMaxHostText = 255;  ///< A name of DNS is no longer.
constexpr size_t kMaxWhy = 1024;      ///< Of PREPARE.

/// R of "JOB/what/R", of "JOB/server/I" the number of that server; -1 of another key.
int32_t writer_of(std::string_view key) {
  const size_t slash = key.rfind('/');
  const char* number = key.data() + (slash + 1);  // 0 if there is no slash
  const char* end = key.data() + key.size();
  int32_t rank = -1;
  const auto [stop, error] = std::from_chars(number, end, rank);
  if (error != std::errc() || stop != end) return -1;
  if (!key.substr(0, slash).ends_with("/server")) return rank;
  return rank >= 0 && rank < kMostServers ? kFirstServer + rank : -1;
}

/// What has become of one that has ended, for those who wait for it.
std::string end_of(int32_t number, const std::string& place) {
  if (!is_server(number))
    return fmt::format("rank {}{} ended before it had joined the job", number, place);
  return fmt::format("table server {}{} ended before it had said where it listens",
                     number - kFirstServer, place);
}

}  // namespace

std::string pod_service_name(const std::string& job_uid) { return "corro-pod-" + job_uid; }

struct AgentService::Impl {
  struct Connection {
    io::Fd fd;
    pid_t pid = 0;
    int32_t proven = -1;  ///< Over TCP: the rank that the handshake was with.
    Bytes arrived;        ///< Over TCP: the beginning of a packet.
    size_t sent = 0;      ///< Over TCP: of the first of `unsent`.
    bool greeted = false;
    bool reads = false;       ///< It is a reader's, who puts nothing.
    std::string member = {};  ///< That hears of epochs by it; "": none.
    size_t waiting = 0;       ///< Entries of waiters_ that are this connection's.
    std::deque<Bytes> unsent;
  };
  struct Waiter {
    uint64_t connection = 0;
    uint32_t request = 0;
  };

  Impl(Options given, std::string listen_name, io::Fd listening, io::Epoll set)
      : options(std::move(given)),
        name(std::move(listen_name)),
        listener(std::move(listening)),
        epoll(std::move(set)) {}

  Status accept_waiting();
  void receive_from(uint64_t id);
  void receive_stream(uint64_t id);
  bool handle_arrived(uint64_t id);
  void tell_stranger(uint64_t id, BytesView packet);
  Result<bool> send_first(Connection& connection);
  /// Handles one packet; false if the connection has to go.
  bool handle(uint64_t id, const AgentMessage& message, std::vector<io::Fd> descriptors);
  bool greet(uint64_t id, int32_t rank, std::vector<io::Fd> descriptors);
  bool follow(uint64_t id, const AgentMessage& message);
  bool hear_ready(uint64_t id, const AgentMessage& message);
  bool hear_leave(uint64_t id, const AgentMessage& message);
  bool hear_notice(uint64_t id, const AgentMessage& message) const;
  void tell(const std::string& member, AgentMessage message);
  [[nodiscard]] size_t max_connections() const {
    return 4 * static_cast<size_t>(options.size) + static_cast<size_t>(options.servers) + 64;
  }
  bool put(uint64_t id, const AgentMessage& message);
  bool get(uint64_t id, const AgentMessage& message);
  void answer_waiters(const std::string& key, Code code, BytesView value);
  bool send(uint64_t id, const AgentMessage& message);
  bool reply(uint64_t id, uint32_t request, Code code, BytesView value);
  bool refuse(uint64_t id, uint32_t request, Code code, std::string_view why);
  bool flush(uint64_t id);
  void drop(uint64_t id);

  Options options;
  std::string name;
  io::Fd listener;
  io::Epoll epoll;
  uint64_t next_id = kListener + 1;
  bool epochs_over = false;  ///< Nobody may follow.
  std::map<uint64_t, Connection> connections;
  std::map<std::string, Bytes> store;
  std::multimap<std::string, Waiter> waiters;
  size_t store_bytes = 0;
  std::set<int32_t> greeted;  ///< Ranks that have said HELLO, and servers that have put a key.
  std::map<int32_t, std::string> ended;            ///< Ranks that will not; what is said of them.
  std::map<std::string, AgentMessage> last_words;  ///< Of epochs, by member.
  Counters counters;
};

Result<std::unique_ptr<AgentService>> AgentService::create(Options options) {
  CORRO_CHECK(options.size >= 1, options.size);
  CORRO_CHECK(options.job.size() <= kMaxBootstrapKey, options.job);
  const std::string name = options.name.empty() ? "corro-agent-" + random_hex(12) : options.name;
  CORRO_ASSIGN(io::Fd listener, io::listen_abstract(name));
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_TRY(epoll.add(listener.get(), EPOLLIN, kListener));
  auto impl =
      std::make_unique<Impl>(std::move(options), name, std::move(listener), std::move(epoll));
  return std::unique_ptr<AgentService>(new AgentService(std::move(impl)));
}

AgentService::AgentService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AgentService::~AgentService() = default;

const std::string& AgentService::name() const { return impl_->name; }
int AgentService::poll_fd() const { return impl_->epoll.fd(); }
const AgentService::Counters& AgentService::counters() const { return impl_->counters; }

Status AgentService::poll() {
  std::array<epoll_event, kBatch> events{};
  CORRO_ASSIGN(const size_t count, impl_->epoll.wait(events, Duration::zero()));
  for (const epoll_event& event : std::span(events).first(count)) {
    const uint64_t id = event.data.u64;
    if (id == kListener) {
      CORRO_TRY(impl_->accept_waiting());
      continue;
    }
    // Dropped while an earlier event of this batch was handled.
    if (!impl_->connections.contains(id)) continue;
    if ((event.events & EPOLLOUT) != 0 && !impl_->flush(id)) {
      impl_->drop(id);
      continue;
    }
    if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) impl_->receive_from(id);
  }
  return {};
}

Status AgentService::Impl::accept_waiting() {
  for (size_t i = 0; i < kBatch; ++i) {
    CORRO_ASSIGN(io::Fd fd, io::accept_connection(listener.get()));
    if (!fd.valid()) return {};
    ++counters.connections;
    const auto peer = io::peer_credentials(fd.get());
    if (!peer.ok() || peer->uid != geteuid() || connections.size() >= max_connections()) {
      ++counters.refused;
      continue;
    }
    const uint64_t id = next_id++;
    CORRO_TRY(epoll.add(fd.get(), EPOLLIN, id));
    connections[id] =
        Connection{.fd = std::move(fd), .pid = peer->pid, .arrived = {}, .unsent = {}};
  }
  return {};
}

Status AgentService::adopt(io::Fd connection, int32_t rank) {
  const uint64_t id = impl_->next_id++;
  CORRO_TRY(impl_->epoll.add(connection.get(), EPOLLIN, id));
  impl_->connections[id] =
      Impl::Connection{.fd = std::move(connection), .proven = rank, .arrived = {}, .unsent = {}};
  return {};
}

size_t AgentService::connected() const { return impl_->connections.size(); }

void AgentService::Impl::receive_stream(uint64_t id) {
  std::array<std::byte, kMaxAgentMessage> piece;
  for (size_t i = 0; i < kBatch; ++i) {
    Connection& connection = connections.at(id);
    const io::Received received = io::receive_message(connection.fd.get(), piece);
    if (received.would_block) return;
    if (received.closed) return drop(id);
    const auto bytes = std::span(piece).first(received.bytes);
    connection.arrived.insert(connection.arrived.end(), bytes.begin(), bytes.end());
    if (!handle_arrived(id)) {
      ++counters.refused;
      return drop(id);
    }
  }
}

/// Handles all whole packets; false if the connection has to go.
bool AgentService::Impl::handle_arrived(uint64_t id) {
  size_t done = 0;
  while (true) {
    Bytes& arrived = connections.at(id).arrived;
    const BytesView rest = BytesView(arrived).subspan(done);
    const auto wanted = agent_packet_bytes(rest);
    if (!wanted.ok()) return false;
    if (rest.size() < *wanted) {
      arrived.erase(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(done));
      return true;
    }
    const auto message = decode_agent_message(rest.first(*wanted));
    if (!message.ok()) tell_stranger(id, rest.first(*wanted));
    if (!message.ok() || !handle(id, *message, {})) return false;
    done += *wanted;
  }
}

/// A worker of another release is told, in its own version, before it loses its connection.
void AgentService::Impl::tell_stranger(uint64_t id, BytesView packet) {
  const auto version = other_version_of(packet);
  if (!version) return;
  const Status why = different_versions(*version, kAgentMessagesVersion);
  const BytesView text = std::as_bytes(std::span(why.message()));
  Connection& connection = connections.at(id);
  connection.unsent.push_back(encode_agent_message({.kind = AgentMessageKind::kReply,
                                                    .code = why.code(),
                                                    .key = {},
                                                    .value = Bytes(text.begin(), text.end())},
                                                   *version));
  (void)flush(id);
}

void AgentService::Impl::receive_from(uint64_t id) {
  if (connections.at(id).proven >= 0) return receive_stream(id);
  std::array<std::byte, kMaxAgentMessage> packet;
  for (size_t i = 0; i < kBatch; ++i) {
    io::Received received = io::receive_message(connections.at(id).fd.get(), packet);
    if (received.would_block) return;
    if (received.closed) return drop(id);
    const auto message = decode_agent_message(std::span(packet).first(received.bytes));
    if (!message.ok()) tell_stranger(id, std::span(packet).first(received.bytes));
    if (received.truncated || !message.ok() ||
        !handle(id, *message, std::move(received.descriptors))) {
      ++counters.refused;
      return drop(id);
    }
  }
}

bool AgentService::Impl::handle(uint64_t id, const AgentMessage& message,
                                std::vector<io::Fd> descriptors) {
  if (message.kind == AgentMessageKind::kHello)
    return greet(id, message.rank, std::move(descriptors));
  if (message.kind == AgentMessageKind::kFollow) return follow(id, message);
  if (message.kind == AgentMessageKind::kReady) return hear_ready(id, message);
  if (message.kind == AgentMessageKind::kLeave) return hear_leave(id, message);
  if (message.kind == AgentMessageKind::kNotice) return hear_notice(id, message);
  if (!connections.at(id).greeted || !descriptors.empty()) return false;
  if (message.kind == AgentMessageKind::kPut) return !connections.at(id).reads && put(id, message);
  if (message.kind == AgentMessageKind::kGet) return get(id, message);
  return false;
}

bool AgentService::Impl::greet(uint64_t id, int32_t rank, std::vector<io::Fd> descriptors) {
  Connection& connection = connections.at(id);
  if (connection.greeted) return false;
  const bool is_rank = rank >= 0 && rank < options.size;
  const bool serves = rank >= kFirstServer && rank < kFirstServer + options.servers;
  if (!is_rank && !serves && rank != kReader) {
    refuse(id, 0, Code::kInvalidArgument,
           fmt::format("rank {} is not in this job: it has ranks 0 to {}", rank, options.size - 1));
    return false;
  }
  const bool remote = connection.proven >= 0;
  if (remote && connection.proven != rank) return false;
  connection.greeted = true;
  connection.reads = rank == kReader;
  if (is_rank) greeted.insert(rank);
  const Bytes secret(options.secret.begin(), options.secret.end());
  const AgentMessage welcome{.kind = AgentMessageKind::kWelcome,
                             .rank = rank,
                             .key = options.job,
                             .value = remote ? Bytes() : secret};
  const pid_t pid = connection.pid;
  const bool sent = send(id, welcome);
  if (options.on_hello && rank != kReader)
    options.on_hello({.rank = rank, .pid = pid, .descriptors = std::move(descriptors)});
  return sent;
}

/// The first packet of a connection on which a member hears of epochs.
bool AgentService::Impl::follow(uint64_t id, const AgentMessage& message) {
  Connection& connection = connections.at(id);
  const bool is_first = !connection.greeted && connection.member.empty();
  if (!is_first || connection.proven >= 0 || message.key.empty() || epochs_over) return false;
  connection.member = message.key;
  const auto last = last_words.find(message.key);
  return last == last_words.end() || send(id, last->second);
}

bool AgentService::Impl::hear_ready(uint64_t id, const AgentMessage& message) {
  const std::string& member = connections.at(id).member;
  ByteReader reader(message.value);
  const auto steps = reader.read<uint64_t>();
  const auto lost = reader.read<int32_t>();
  if (member.empty() || !lost || !reader.done()) return false;
  if (options.on_ready)
    options.on_ready({.member = member, .epoch = message.request, .steps = *steps, .lost = *lost});
  return true;
}

bool AgentService::Impl::hear_leave(uint64_t id, const AgentMessage& message) {
  const std::string& member = connections.at(id).member;
  if (member.empty() || !message.value.empty()) return false;
  if (options.on_leave) options.on_leave(member);
  return true;
}

bool AgentService::Impl::hear_notice(uint64_t id, const AgentMessage& message) const {
  const std::string& member = message.key;
  ByteReader reader(message.value);
  const auto step = reader.read<uint64_t>();
  const bool is_known = message.request <= static_cast<uint32_t>(kLastNoticeKind);
  if (connections.at(id).proven >= 0 || member.empty() || !step || !is_known) return false;
  const BytesView text = BytesView(message.value).subspan(sizeof(*step));
  if (options.on_notice)
    options.on_notice(
        {.member = member,
         .notice = {.kind = static_cast<NoticeKind>(message.request),
                    .step = *step,
                    .text = {reinterpret_cast<const char*>(text.data()), text.size()}}});
  return true;
}

/// What a member has to know of epochs, now and when it follows later.
void AgentService::Impl::tell(const std::string& member, AgentMessage message) {
  std::vector<uint64_t> deaf;
  for (const auto& [id, connection] : connections) {
    if (connection.member == member && !send(id, message)) deaf.push_back(id);
  }
  for (const uint64_t id : deaf) drop(id);
  last_words[member] = std::move(message);
}

void AgentService::prepare(const std::string& member, uint32_t epoch, bool at_once,
                           const std::string& why) {
  const BytesView text = std::as_bytes(std::span(why)).first(std::min(why.size(), kMaxWhy));
  impl_->tell(member, {.kind = AgentMessageKind::kPrepare,
                       .request = epoch,
                       .code = at_once ? Code::kAborted : Code::kOk,
                       .key = {},
                       .value = Bytes(text.begin(), text.end())});
}

void AgentService::start_epoch(int32_t size) {
  CORRO_CHECK(size >= 1, size);
  impl_->options.size = size;
  impl_->store.clear();
  impl_->store_bytes = 0;
  impl_->greeted.clear();
  impl_->ended.clear();
}

void AgentService::commit(const std::string& member, uint32_t epoch, int32_t rank, bool last) {
  ByteWriter size;
  size.write(static_cast<uint32_t>(impl_->options.size));
  impl_->tell(member, {.kind = AgentMessageKind::kCommit,
                       .request = epoch,
                       .rank = rank,
                       .code = last ? Code::kCancelled : Code::kOk,
                       .key = {},
                       .value = size.take()});
}

void AgentService::end_epochs() {
  impl_->epochs_over = true;
  std::vector<uint64_t> followers;
  for (const auto& [id, connection] : impl_->connections)
    if (!connection.member.empty()) followers.push_back(id);
  for (const uint64_t id : followers) impl_->drop(id);
}

bool AgentService::Impl::put(uint64_t id, const AgentMessage& message) {
  const auto existing = store.find(message.key);
  if (existing != store.end()) {
    if (existing->second == message.value) return reply(id, message.request, Code::kOk, {});
    return refuse(id, message.request, Code::kAlreadyExists, "the key has another value");
  }
  const size_t bytes = message.key.size() + message.value.size();
  if (bytes > options.max_store_bytes - store_bytes) {
    return refuse(id, message.request, Code::kResourceExhausted,
                  fmt::format("the agent's store is full ({} bytes)", options.max_store_bytes));
  }
  store_bytes += bytes;
  store.emplace(message.key, message.value);
  if (const int32_t writer = writer_of(message.key); is_server(writer)) greeted.insert(writer);
  if (options.on_put) options.on_put(message.key, message.value);
  answer_waiters(message.key, Code::kOk, message.value);
  return connections.contains(id) && reply(id, message.request, Code::kOk, {});
}

bool AgentService::Impl::get(uint64_t id, const AgentMessage& message) {
  const auto found = store.find(message.key);
  if (found != store.end()) return reply(id, message.request, Code::kOk, found->second);
  if (const auto gone = ended.find(writer_of(message.key)); gone != ended.end())
    return refuse(id, message.request, Code::kNotFound, gone->second);
  Connection& connection = connections.at(id);
  if (connection.waiting >= kMaxWaiting) return false;
  ++connection.waiting;
  waiters.emplace(message.key, Waiter{id, message.request});
  return true;
}

void AgentService::supply(const std::string& key, const Bytes& value) {
  const size_t bytes = key.size() + value.size();
  if (bytes > impl_->options.max_store_bytes - impl_->store_bytes) return;
  if (!check_bootstrap_put(key, value).ok() || !impl_->store.emplace(key, value).second) return;
  impl_->store_bytes += bytes;
  impl_->answer_waiters(key, Code::kOk, value);
}

bool AgentService::greeted(int32_t rank) const { return impl_->greeted.contains(rank); }

void AgentService::end_rank(int32_t rank, const std::string& host) {
  if (greeted(rank)) return;
  const std::string place = host.empty() ? "" : fmt::format(" on {:.{}}", host, kMaxHostText);
  const auto gone = impl_->ended.emplace(rank, end_of(rank, place));
  const std::string& text = gone.first->second;
  std::set<std::string> keys;
  for (const auto& [key, waiter] : impl_->waiters) {
    if (writer_of(key) == rank) keys.insert(key);
  }
  for (const std::string& key : keys) {
    impl_->answer_waiters(key, Code::kNotFound, std::as_bytes(std::span(text)));
  }
}

void AgentService::Impl::answer_waiters(const std::string& key, Code code, BytesView value) {
  std::vector<Waiter> ready;
  const auto [first, last] = waiters.equal_range(key);
  for (auto entry = first; entry != last; ++entry) ready.push_back(entry->second);
  waiters.erase(first, last);
  for (const Waiter& waiter : ready) {
    const auto connection = connections.find(waiter.connection);
    if (connection == connections.end()) continue;
    --connection->second.waiting;
    if (!reply(waiter.connection, waiter.request, code, value)) drop(waiter.connection);
  }
}

bool AgentService::Impl::reply(uint64_t id, uint32_t request, Code code, BytesView value) {
  return send(id, {.kind = AgentMessageKind::kReply,
                   .request = request,
                   .code = code,
                   .key = {},
                   .value = Bytes(value.begin(), value.end())});
}

bool AgentService::Impl::refuse(uint64_t id, uint32_t request, Code code, std::string_view why) {
  return reply(id, request, code, std::as_bytes(std::span(why)));
}

bool AgentService::Impl::send(uint64_t id, const AgentMessage& message) {
  Connection& connection = connections.at(id);
  if (connection.unsent.size() >= kMaxUnsent) return false;
  connection.unsent.push_back(encode_agent_message(message));
  return connection.unsent.size() > 1 || flush(id);
}

/// Whether all of it is sent.
Result<bool> AgentService::Impl::send_first(Connection& connection) {
  const BytesView packet = connection.unsent.front();
  if (connection.proven < 0) return io::send_message(connection.fd.get(), packet);
  CORRO_ASSIGN(const size_t sent,
               io::send_some(connection.fd.get(), packet.subspan(connection.sent)));
  connection.sent += sent;
  if (connection.sent < packet.size()) return false;
  connection.sent = 0;
  return true;
}

bool AgentService::Impl::flush(uint64_t id) {
  Connection& connection = connections.at(id);
  while (!connection.unsent.empty()) {
    const auto sent = send_first(connection);
    if (!sent.ok()) return false;
    if (!*sent) return epoll.modify(connection.fd.get(), EPOLLIN | EPOLLOUT, id).ok();
    connection.unsent.pop_front();
  }
  return epoll.modify(connection.fd.get(), EPOLLIN, id).ok();
}

void AgentService::Impl::drop(uint64_t id) {
  std::erase_if(waiters, [id](const auto& entry) { return entry.second.connection == id; });
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  epoll.remove(found->second.fd.get());
  connections.erase(found);
}

}  // namespace corro::wire
