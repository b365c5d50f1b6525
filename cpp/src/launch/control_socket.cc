#include "launch/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/quoted.h"
#include "io/files.h"
#include "io/socket.h"

namespace corro::launch {
namespace {

constexpr std::string_view kRequest = "stacks";
constexpr size_t kPiece = size_t{32} << 10U;  ///< Of an answer, in one packet.
constexpr size_t kMostClients = 16;
constexpr uint64_t kListener = 0;

std::string prefix() { return fmt::format("corro-control-{}-", geteuid()); }

bool is_mine(int socket) {
  const auto peer = io::peer_credentials(socket);
  return peer.ok() && peer->uid == geteuid();
}

BytesView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Reads "corro-control-UID-PID-JOB".
bool read_name(const std::string& name, RunningJob& job) {
  if (!name.starts_with(prefix())) return false;
  const std::string rest = name.substr(prefix().size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), job.launcher);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '-') return false;
  job.socket = name;
  job.id = std::string(end + 1, rest.data() + rest.size());
  return true;
}

std::string command_of(pid_t pid) {
  std::string words = io::read_small_file(fmt::format("/proc/{}/cmdline", pid));
  std::string line;
  std::istringstream text(words);
  for (std::string word; std::getline(text, word, '\0');)
    line += (line.empty() ? "" : " ") + corro::quoted(word);
  return line;
}

/// Whose socket has this name: others may take it, too.
bool is_own_socket(const std::string& name) {
  const auto socket = io::connect_abstract(name);
  return socket.ok() && is_mine(socket->get());
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string& job_id) {
  const std::string name = fmt::format("{}{}-{}", prefix(), getpid(), job_id);
  CORRO_ASSIGN(io::Fd listener, io::listen_abstract(name));
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_TRY(epoll.add(listener.get(), EPOLLIN, kListener));
  return std::unique_ptr<ControlSocket>(new ControlSocket(std::move(listener), std::move(epoll)));
}

void ControlSocket::poll() {
  std::array<epoll_event, 16> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  const size_t count = ready.ok() ? *ready : 0;
  for (size_t i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListener) {
      accept_waiting();
      continue;
    }
    const auto found = clients_.find(static_cast<int>(events[i].data.u64));
    if (found == clients_.end() || serve(found->second)) continue;
    epoll_.remove(found->first);
    clients_.erase(found);
  }
}

void ControlSocket::accept_waiting() {
  while (true) {
    auto accepted = io::accept_connection(listener_.get());
    if (!accepted.ok() || !accepted->valid()) return;
    const int fd = accepted->get();
    if (clients_.size() >= kMostClients || !is_mine(fd)) continue;
    if (epoll_.add(fd, EPOLLIN, static_cast<uint64_t>(fd)).ok())
      clients_.emplace(fd, Client{.fd = std::move(*accepted)});
  }
}

bool ControlSocket::serve(Client& client) {
  std::array<std::byte, 64> packet{};
  const io::Received received = io::receive_message(client.fd.get(), packet);
  if (received.closed) return false;
  if (!received.would_block) {
    const auto asked = BytesView(packet).first(received.bytes);
    if (!std::ranges::equal(asked, bytes_of(kRequest))) return false;
    client.asked = true;
  }
  return flush(client);
}

/// False once all is said.
bool ControlSocket::flush(Client& client) {
  if (client.unsent.empty()) return true;
  while (!client.unsent.empty()) {
    const auto sent = io::send_message(client.fd.get(), bytes_of(client.unsent.front()));
    if (!sent.ok()) return false;
    if (!*sent) {
      const int fd = client.fd.get();
      return epoll_.modify(fd, EPOLLIN | EPOLLOUT, static_cast<uint64_t>(fd)).ok();
    }
    client.unsent.pop_front();
  }
  return false;
}

bool ControlSocket::asked() const {
  return std::ranges::any_of(clients_, [](const auto& entry) { return entry.second.asked; });
}

void ControlSocket::answer(const std::string& text) {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    Client& client = entry->second;
    if (std::exchange(client.asked, false)) {
      for (size_t at = 0; at < text.size(); at += kPiece)
        client.unsent.push_back(text.substr(at, kPiece));
      if (!flush(client)) {
        epoll_.remove(entry->first);
        entry = clients_.erase(entry);
        continue;
      }
    }
    ++entry;
  }
}

std::vector<RunningJob> find_jobs() {
  std::map<pid_t, RunningJob> jobs;
  std::istringstream sockets(io::read_small_file("/proc/net/unix"));
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.rfind(" @");
    RunningJob job;
    if (at == std::string::npos || !read_name(line.substr(at + 2), job)) continue;
    if (!is_own_socket(job.socket)) continue;
    job.command = command_of(job.launcher);
    jobs[job.launcher] = std::move(job);
  }
  std::vector<RunningJob> found;
  for (auto& [pid, job] : jobs) found.push_back(std::move(job));
  return found;
}

Result<std::string> ask_stacks(const RunningJob& job, Duration patience) {
  const Time deadline = monotonic_now() + patience;
  const auto socket = io::connect_abstract(job.socket);
  const Status gone(Code::kUnavailable, fmt::format("job {} has ended", job.id));
  if (!socket.ok() || !is_mine(socket->get())) return gone;
  const auto sent = io::send_message(socket->get(), bytes_of(kRequest));
  if (!sent.ok() || !*sent) return gone;
  std::string text;
  std::array<std::byte, kPiece> packet{};
  while (true) {
    if (!io::wait_ready(socket->get(), POLLIN, deadline))
      return Status(Code::kDeadlineExceeded, fmt::format("job {} does not answer", job.id));
    const io::Received received = io::receive_message(socket->get(), packet);
    if (received.would_block) continue;
    if (received.closed) break;
    text.append(reinterpret_cast<const char*>(packet.data()), received.bytes);
  }
  if (text.empty()) return gone;
  return text;
}

}  // namespace corro::launch
