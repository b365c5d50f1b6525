#include "coordinator/gathering.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "agent/reminder.h"

namespace corro::coordinator {
namespace {

constexpr Duration kSeenLately = std::chrono::seconds(5);  ///< An agent dials each second.

/// Loop-confined.
class Gathering {
 public:
  Gathering(launch::Reception& reception, const GatheringOptions& options)
      : reception_(reception), options_(options) {}

  void take(launch::Reception::Dialled dialled) {
    if (const Status ours = dialled.check_job(options_.job); !ours.ok())
      return reception_.refuse(std::move(dialled), ours);
    const std::string& name = dialled.hello.host;
    const auto known =
        std::ranges::find(seen_, name, [](const Seen& one) { return one.host.name; });
    if (known != seen_.end()) {
      if (const Status fits = known->check(dialled); !fits.ok())
        return reception_.refuse(std::move(dialled), fits);
    }
    Seen& one = known == seen_.end() ? seen_.emplace_back() : *known;
    one = {.host = {.name = name, .slots = dialled.hello.slots},
           .generation = dialled.generation,
           .pid = dialled.hello.pid,
           .last = monotonic_now()};
    reception_.refuse(std::move(dialled), {Code::kUnavailable, describe()});
  }
  /// Those of which nothing is seen any more do not count.
  void forget_late(Time now) {
    std::erase_if(seen_, [now](const Seen& one) { return now >= one.last + kSeenLately; });
  }
  /// What has changed, for people; and seldom, what has not.
  void say(Time now) {
    std::string line = describe();
    if (std::exchange(said_, line) != line) fmt::print(stderr, "corro coordinator: {}\n", line);
    const auto missing = absent();
    if (missing.empty()) return absent_.reset(now);
    if (absent_.take(now)) fmt::print(stderr, "corro coordinator: {}\n", describe_absent(missing));
  }
  [[nodiscard]] bool enough() const { return offered() >= options_.slots; }
  [[nodiscard]] std::string describe() const {
    return fmt::format("waiting for agents: {} of {} slots are there", offered(), options_.slots);
  }
  [[nodiscard]] std::vector<launch::HostSlots> hosts() const {
    std::vector<launch::HostSlots> hosts;
    for (const Seen& one : seen_) hosts.push_back(one.host);
    return hosts;
  }

 private:
  struct Seen {
    launch::HostSlots host;
    uint32_t generation = 0;
    int32_t pid = 0;  ///< Of the agent.
    Time last{};

    /// Whether another one that is called so may take its place.
    [[nodiscard]] Status check(const launch::Reception::Dialled& other) const {
      if (other.generation > generation) return {};
      if (other.generation < generation) return {Code::kFailedPrecondition, launch::kReplaced};
      if (other.hello.pid == pid) return {};
      return {Code::kUnavailable,
              "another agent is called " + host.name + ", too: give one of them another --host"};
    }
  };
  [[nodiscard]] std::vector<std::string> absent() const {
    std::vector<std::string> names = options_.expected;
    std::erase_if(names, [this](const std::string& name) {
      return std::ranges::find(seen_, name, [](const Seen& one) { return one.host.name; }) !=
             seen_.end();
    });
    return names;
  }
  [[nodiscard]] int offered() const {
    int all = 0;
    for (const Seen& one : seen_) all += one.host.slots;
    return all;
  }

  launch::Reception& reception_;
  const GatheringOptions& options_;
  std::vector<Seen> seen_;
  std::string said_;
  agent::Reminder absent_{agent::kAbsentFirst, agent::kReminderPause, monotonic_now()};
};

/// SIGINT and SIGTERM are read while this is there, and do what they did after it.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&stops_);
    sigaddset(&stops_, SIGINT);
    sigaddset(&stops_, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops_, &before_);
    fd_.reset(signalfd(-1, &stops_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~StopSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::optional<int> take() {
    signalfd_siginfo signal{};
    if (read(fd_.get(), &signal, sizeof(signal)) != sizeof(signal)) return std::nullopt;
    return static_cast<int>(signal.ssi_signo);
  }

 private:
  sigset_t stops_{}, before_{};
  io::Fd fd_;
};

}  // namespace

std::string describe_absent(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 8;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed)));
  const std::string more =
      names.size() > kNamed ? fmt::format(" and {} more", names.size() - kNamed) : "";
  return fmt::format("still waiting for {}{}; the log of each says what it cannot reach",
                     fmt::join(first, ", "), more);
}

Result<std::vector<launch::HostSlots>> gather(launch::Reception& reception, launch::Lead& lead,
                                              io::Loop& loop, const GatheringOptions& options,
                                              std::optional<int>& asked) {
  Gathering gathering(reception, options);
  StopSignals signals;
  const Time until = options.patience ? monotonic_now() + *options.patience : Time::never();
  CORRO_TRY(loop.watch(signals.fd(), EPOLLIN, [&] { asked = signals.take(); }));
  CORRO_TRY(reception.watch(
      loop, [&](launch::Reception::Dialled dialled) { gathering.take(std::move(dialled)); }));
  while (!gathering.enough()) {
    gathering.say(monotonic_now());
    // Once a second those are looked for that have gone.
    loop.turn(std::min({lead.due(), reception.due(), until}));
    const Time now = monotonic_now();
    reception.tick(now);
    lead.keep(now);
    gathering.forget_late(now);
    if (!lead.lost().empty()) return Status(Code::kAborted, lead.lost());
    if (asked) return Status(Code::kCancelled, "stopped before the job has begun");
    if (now >= until) return Status(Code::kDeadlineExceeded, gathering.describe());
  }
  loop.forget(signals.fd());
  return gathering.hosts();
}

}  // namespace corro::coordinator
