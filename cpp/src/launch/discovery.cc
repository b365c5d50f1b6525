#include "launch/discovery.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <numeric>
#include <utility>

#include "base/variables.h"

namespace corro::launch {
namespace {

constexpr Duration kLookPause = std::chrono::milliseconds(20);  ///< At a program that runs.
constexpr size_t kMostPrinted = size_t{1} << 20U;

/// The last line that says anything.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

void sleep_for(Duration span) {
  const auto count = span.count();
  const timespec pause{.tv_sec = count / 1'000'000'000, .tv_nsec = count % 1'000'000'000};
  (void)nanosleep(&pause, nullptr);
}

int slots_of(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

}  // namespace

Time HostDiscovery::due() const { return program_ ? std::min(next_, until_) : next_; }

std::optional<HostDiscovery::Answer> HostDiscovery::poll(Time now) {
  if (now < due()) return std::nullopt;
  if (!program_) {
    const Status started = start();
    if (!started.ok()) return finish(now, started);
    until_ = now + kDiscoveryPatience;
    next_ = now + kLookPause;
    return std::nullopt;
  }
  // First: what it has printed before its end is in the pipes then.
  int status = 0;
  const bool ended = waitpid(program_->pid, &status, WNOHANG) == program_->pid;
  read_all();
  if (!ended && now < until_) {
    next_ = now + kLookPause;
    return std::nullopt;
  }
  if (!ended) {
    end();
    return finish(now, {Code::kDeadlineExceeded, "it has not ended after 30 s"});
  }
  program_.reset();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return finish(now, {});
  const std::string how = WIFEXITED(status) ? fmt::format("status {}", WEXITSTATUS(status))
                                            : fmt::format("signal {}", WTERMSIG(status));
  const std::string last = last_line(said_);
  return finish(now, {Code::kUnavailable,
                      fmt::format("it ended with {}{}{}", how, last.empty() ? "" : ": ", last)});
}

Status HostDiscovery::start() {
  printed_.clear();
  said_.clear();
  const agent::WorkerSpec spec{.program = "/bin/sh",
                               .arguments = {"sh", "-c", command_},
                               .environment = read_variables(),
                               .processors = {},
                               .out_terminal = std::nullopt,
                               .err_terminal = std::nullopt};
  CORRO_ASSIGN(program_, agent::start_worker(spec, mask_));
  return {};
}

void HostDiscovery::read_all() {
  std::array<char, 4096> buffer{};
  for (const auto& [fd, text] :
       {std::pair(program_->out.get(), &printed_), std::pair(program_->err.get(), &said_)}) {
    ssize_t count = 0;
    while ((count = read(fd, buffer.data(), buffer.size())) > 0) {
      if (text->size() < kMostPrinted) text->append(buffer.data(), static_cast<size_t>(count));
    }
  }
}

HostDiscovery::Answer HostDiscovery::finish(Time now, const Status& failure) {
  next_ = now + kDiscoveryPause;
  until_ = Time::never();
  if (!failure.ok()) return failure.with_context(source());
  CORRO_ASSIGN(auto hosts, parse_hostfile(printed_, source()));
  return under_one_name(std::move(hosts), own_);
}

/// Its children are in its process group.
void HostDiscovery::end() {
  if (!program_) return;
  (void)kill(-program_->pid, SIGKILL);
  (void)waitpid(program_->pid, nullptr, 0);
  program_.reset();
}

HostDiscovery::Answer wait_for_hosts(HostDiscovery& discovery, int slots, Duration patience,
                                     const std::function<void(const std::string&)>& wait) {
  const Time until = monotonic_now() + patience;
  std::string last;
  while (true) {
    const Time now = monotonic_now();
    if (now < discovery.due()) sleep_for(std::min(discovery.due(), until) - now);
    auto answer = discovery.poll(monotonic_now());
    if (answer && answer->ok() && slots_of(**answer) >= slots) return std::move(*answer);
    if (answer) {
      std::string why = !answer->ok() ? answer->status().message()
                                      : fmt::format("{}: {} slots, and {} are needed",
                                                    discovery.source(), slots_of(**answer), slots);
      if (why != last) wait(why);
      last = std::move(why);
    }
    if (monotonic_now() >= until) return Status(Code::kDeadlineExceeded, last);
  }
}

}  // namespace corro::launch
