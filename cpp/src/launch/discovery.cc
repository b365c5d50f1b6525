#include "launch/discovery.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "diagnosis/flight_text.h"

namespace corro::launch {
namespace {

constexpr Duration kLookPause = std::chrono::milliseconds(20);  ///< At a program that runs.

void sleep_for(Duration span) {
  const auto count = span.count();
  const timespec pause{.tv_sec = count / 1'000'000'000, .tv_nsec = count % 1'000'000'000};
  (void)nanosleep(&pause, nullptr);
}

int slots_of(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

/// `last`: why the last answer was not enough; "": there was none.
Status given_up(const HostDiscovery& discovery, const std::string& last, Duration patience) {
  const std::string span = diagnosis::format_span(patience);
  return {Code::kDeadlineExceeded,
          last.empty() ? fmt::format("{}: it has not answered after {}", discovery.source(), span)
                       : fmt::format("{}, after {}", last, span)};
}

}  // namespace

Time HostDiscovery::due() const { return program_ ? std::min(next_, until_) : next_; }

std::optional<HostDiscovery::Answer> HostDiscovery::poll(Time now) {
  if (now < due()) return std::nullopt;
  if (!program_) {
    auto started = ShellProgram::start(command_, agent::StandardInput::kNone, mask_);
    if (!started.ok()) return finish(now, started.status());
    program_ = std::move(*started);
    until_ = now + kDiscoveryPatience;
    next_ = now + kLookPause;
    return std::nullopt;
  }
  // First: what it has printed before its end is in the pipes then.
  const std::optional<int> status = program_->ended();
  program_->read();
  if (!status && now < until_) {
    next_ = now + kLookPause;
    return std::nullopt;
  }
  if (!status) return finish(now, {Code::kDeadlineExceeded, "it has not ended after 30 s"});
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return finish(now, {});
  return finish(now, {Code::kUnavailable, describe_end(*status, program_->last_word())});
}

HostDiscovery::Answer HostDiscovery::finish(Time now, const Status& failure) {
  const std::unique_ptr<ShellProgram> program = std::exchange(program_, nullptr);
  next_ = now + kDiscoveryPause;
  until_ = Time::never();
  if (!failure.ok()) return failure.with_context(source());
  CORRO_ASSIGN(auto hosts, parse_hostfile(program->printed, source()));
  return under_one_name(std::move(hosts), own_);
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
    if (monotonic_now() >= until) return given_up(discovery, last, patience);
  }
}

}  // namespace corro::launch
