#include "agent/rank_process.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>

#include "agent/processes.h"
#include "diagnosis/flight_text.h"

namespace corro::agent {
namespace {

constexpr size_t kTailBytes = 64U << 10U;

obs::ProcessSnapshot shortened(obs::ProcessSnapshot process) {
  if (process.recent.empty()) return process;
  std::vector<obs::OpSnapshot> kept{*diagnosis::telling_operation(process)};
  const obs::OpSnapshot* last = diagnosis::last_operation(process);
  if (last != nullptr && last->sequence != kept[0].sequence)
    kept.insert(last->sequence < kept[0].sequence ? kept.begin() : kept.end(), *last);
  process.recent = std::move(kept);
  return process;
}

}  // namespace

RankProcess::RankProcess(Worker worker)
    : streams_{std::move(worker.out), std::move(worker.err), std::move(worker.result)},
      in_(std::move(worker.in)) {
  end_.pid = worker.pid;
}

std::string_view RankProcess::read(io::Output stream, std::span<char> buffer) {
  io::Fd& fd = streams_[static_cast<size_t>(stream)];
  if (!fd.valid()) return {};
  const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count <= 0) {
    const bool later = count < 0 && (errno == EAGAIN || errno == EINTR);
    if (!later) fd.reset();  // end of file, or EIO: the last holder of a pseudo terminal is gone
    return {};
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(count));
  if (stream == io::Output::kErr) {
    stderr_tail_ += bytes;
    if (stderr_tail_.size() > 2 * kTailBytes)
      stderr_tail_.erase(0, stderr_tail_.size() - kTailBytes);
  }
  return bytes;
}

void RankProcess::give(std::string_view bytes, bool ends) {
  input_ += bytes;
  input_ends_ = input_ends_ || ends;
}

size_t RankProcess::flush_input() {
  const size_t before = input_.size();
  while (in_.valid() && !input_.empty()) {
    const ssize_t count = write(in_.get(), input_.data(), input_.size());
    if (count < 0 && errno == EAGAIN) return before - input_.size();
    if (count < 0 && errno != EINTR) in_.reset();  // It reads no more.
    if (count > 0) input_.erase(0, static_cast<size_t>(count));
  }
  input_.clear();
  if (input_ends_) in_.reset();
  return before;
}

void RankProcess::send(int signal) const {
  if (running()) kill(pid(), signal);  // not reaped yet: the pid is still its own
}

void RankProcess::set_terminal_size(io::Output stream, const winsize& size) const {
  if (fd(stream) >= 0) ioctl(fd(stream), TIOCSWINSZ, &size);  // does nothing to a pipe
}

void RankProcess::set_ended(int status, bool stopped) {
  end_.ended = true;
  end_.status = status;
  end_.stopped = stopped;
}

void RankProcess::kill_all() {
  if (!running()) return;
  const std::vector<pid_t> below = descendants_of(pid());
  send(SIGKILL);
  for (const pid_t process : below) kill(process, SIGKILL);
}

pid_t RankProcess::python() const {
  if (!flight_.valid()) return pid();
  const auto flight = obs::read_flight(flight_.get());
  return flight.ok() && flight->pid > 0 ? flight->pid : pid();
}

void RankProcess::ask() {
  if (!running() || asked_) return;
  const diagnosis::RankEnd now = describe();
  end_.crash = now.crash;
  asked_ = ask_where(python());
}

diagnosis::RankEnd RankProcess::look() const {
  diagnosis::RankEnd seen = describe();
  const char state = process_state(seen.flight ? seen.flight->pid : pid());
  seen.paused = seen.paused || state == 'T' || state == 't';
  if (!tables_.valid()) return seen;
  auto tables = obs::read_tables(tables_.get());
  if (tables.ok()) seen.tables = std::move(tables).value();
  return seen;
}

std::optional<obs::ProcessTrace> RankProcess::trace(uint32_t steps) const {
  if (!flight_.valid()) return std::nullopt;
  auto trace = obs::trace_flight(flight_.get(), steps);
  if (!trace.ok()) return std::nullopt;
  return std::move(*trace);
}

diagnosis::RankEnd RankProcess::describe() const {
  diagnosis::RankEnd end = end_;
  if (!asked_ || !end.stopped) end.crash = diagnosis::parse_crash(stderr_tail_);
  if (flight_.valid()) {
    auto flight = obs::read_flight(flight_.get());
    if (flight.ok()) end.flight = shortened(std::move(flight).value());
  }
  if (asked_) {
    end.at = read_where(*asked_);
    end.paused = asked_->paused;
  }
  return end;
}

}  // namespace corro::agent
