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

constexpr std::array<std::string_view, 5> kWords = {"stacks", "picture", "end", "trace",
                                                    "page"};  ///< Of Question.
constexpr std::string_view kServers = "servers ";
constexpr std::string_view kRefused = "no: ";
constexpr size_t kPiece = size_t{32} << 10U;  ///< Of an answer, in one packet.
constexpr size_t kMostClients = 64;
constexpr uint64_t kListener = 0;

std::string prefix() { return fmt::format("corro-control-{}-", geteuid()); }

bool is_mine(int socket) {
  const auto peer = io::peer_credentials(socket);
  return peer.ok() && peer->uid == geteuid();
}

BytesView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// A word, and behind that of a trace a number.
std::string packet_of(Question question, uint32_t steps) {
  const std::string_view word = kWords[static_cast<size_t>(question)];
  return question == Question::kTrace ? fmt::format("{} {}", word, steps) : std::string(word);
}

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

/// "servers +2", "servers -1": two more, and server 1 is to leave.
std::string word_of(const ServerChange& change) {
  return fmt::format("{}{}{}", kServers, change.leaves ? '-' : '+', change.number);
}

std::optional<ServerChange> read_change(std::string_view word) {
  if (!word.starts_with(kServers) || word.size() < kServers.size() + 2) return std::nullopt;
  ServerChange change;
  change.leaves = word[kServers.size()] == '-';
  const char* const begin = word.data() + kServers.size() + 1;
  std::from_chars(begin, word.data() + word.size(), change.number);
  return word_of(change) == word ? std::optional(change) : std::nullopt;
}

/// Whose socket has this name: others may take it, too.
bool is_own_socket(const std::string& name) {
  const auto socket = io::connect_abstract(name);
  return socket.ok() && is_mine(socket->get());
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string& job_id) {
  CORRO_ASSIGN(io::Fd listener, io::listen_abstract(own_job(job_id).socket));
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
  if (received.would_block) return flush(client);
  return take_word(client, BytesView(packet).first(received.bytes));
}

/// False if it is no word, or not the first one.
bool ControlSocket::take_word(Client& client, BytesView packet) {
  if (client.asked || client.change || !client.unsent.empty()) return false;
  const std::string_view text(reinterpret_cast<const char*>(packet.data()), packet.size());
  client.change = read_change(text);
  if (client.change) return true;
  const auto* const found = std::ranges::find(kWords, text.substr(0, text.find(' ')));
  if (found == kWords.end()) return false;
  const auto question = static_cast<Question>(found - kWords.begin());
  uint32_t steps = 0;
  if (question == Question::kTrace) {
    const std::string_view number = text.substr(std::min(text.size(), found->size() + 1));
    std::from_chars(number.data(), number.data() + number.size(), steps);
  }
  if (text != packet_of(question, steps)) return false;
  client.asked = question;
  client.steps = steps;
  return true;
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

bool ControlSocket::asked(Question question) const {
  return std::ranges::any_of(
      clients_, [question](const auto& entry) { return entry.second.asked == question; });
}

uint32_t ControlSocket::steps() const {
  uint32_t most = 0;
  for (const auto& [fd, client] : clients_)
    if (client.asked == Question::kTrace) most = std::max(most, client.steps);
  return most;
}

bool ControlSocket::is_answering() const {
  return std::ranges::any_of(clients_,
                             [](const auto& entry) { return !entry.second.unsent.empty(); });
}

void ControlSocket::answer(Question question, const std::string& text) {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    Client& client = entry->second;
    if (client.asked == question) {
      client.asked.reset();
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

std::optional<std::pair<int, ServerChange>> ControlSocket::next_change() {
  for (const auto& [fd, client] : clients_)
    if (client.change) return std::pair(fd, *client.change);
  return std::nullopt;
}

void ControlSocket::answer_change(int fd, const std::string& text) {
  Client& client = clients_.at(fd);
  client.change.reset();
  client.unsent.push_back(text);
  if (flush(client)) return;
  epoll_.remove(fd);
  clients_.erase(fd);
}

RunningJob own_job(const std::string& job_id) {
  return {.socket = fmt::format("{}{}-{}", prefix(), getpid(), job_id),
          .launcher = getpid(),
          .id = job_id,
          .command = command_of(getpid())};
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

// -- the command ----------------------------------------------------------------------------------

namespace {

Status has_ended(const RunningJob& job) {
  return {Code::kUnavailable, fmt::format("job {} has ended", job.id)};
}

/// Of a job that has hung up.
Status why_unanswered(const RunningJob& job) {
  if (!is_own_socket(job.socket)) return has_ended(job);
  return {Code::kFailedPrecondition,
          fmt::format("job {} does not answer that: it was started by another version of corro, or "
                      "too many ask it at once",
                      job.id)};
}

}  // namespace

Result<Inquiry> Inquiry::create(const RunningJob& job, Question question, uint32_t steps) {
  return send(job, packet_of(question, steps));
}

Result<Inquiry> Inquiry::create(const RunningJob& job, const ServerChange& change) {
  return send(job, word_of(change));
}

Result<Inquiry> Inquiry::send(const RunningJob& job, std::string_view word) {
  auto socket = io::connect_abstract(job.socket);
  if (!socket.ok() || !is_mine(socket->get())) return has_ended(job);
  const auto sent = io::send_message(socket->get(), bytes_of(word));
  if (!sent.ok() || !*sent) return why_unanswered(job);
  return Inquiry(job, std::move(*socket));
}

Result<std::string> Inquiry::read() {
  std::array<std::byte, kPiece> packet{};
  while (true) {
    const io::Received received = io::receive_message(socket_.get(), packet);
    if (received.would_block) return std::string();
    if (received.closed) break;
    text_.append(reinterpret_cast<const char*>(packet.data()), received.bytes);
  }
  if (text_.empty()) return why_unanswered(job_);
  return std::exchange(text_, {});
}

Result<std::string> Inquiry::wait(Time deadline) {
  while (io::wait_ready(socket_.get(), POLLIN, deadline)) {
    auto text = read();
    if (!text.ok() || !text->empty()) return text;
  }
  return Status(Code::kDeadlineExceeded, fmt::format("job {} does not answer", job_.id));
}

std::string refused(const std::string& why) { return std::string(kRefused) + why; }

namespace {

Result<std::string> answer_to(Inquiry inquiry, Duration patience) {
  CORRO_ASSIGN(std::string text, inquiry.wait(monotonic_now() + patience));
  if (text.starts_with(kRefused))
    return Status(Code::kFailedPrecondition, text.substr(kRefused.size()));
  return text;
}

}  // namespace

Result<std::string> ask(const RunningJob& job, Question question, Duration patience,
                        uint32_t steps) {
  CORRO_ASSIGN(Inquiry inquiry, Inquiry::create(job, question, steps));
  return answer_to(std::move(inquiry), patience);
}

Result<std::string> ask(const RunningJob& job, const ServerChange& change, Duration patience) {
  CORRO_ASSIGN(Inquiry inquiry, Inquiry::create(job, change));
  return answer_to(std::move(inquiry), patience);
}

}  // namespace corro::launch
