#include "agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "agent/branches.h"
#include "agent/course_orders.h"
#include "agent/following.h"
#include "agent/processes.h"
#include "agent/rank_inquiry.h"
#include "agent/rank_starts.h"
#include "agent/rank_streams.h"
#include "agent/reaper.h"
#include "agent/station.h"
#include "agent/surveyor.h"
#include "agent/sync_target.h"
#include "agent/worker_service.h"
#include "diagnosis/exit_status.h"

namespace corro::agent {
namespace {

constexpr int kTryLater = 75;    ///< EX_TEMPFAIL of sysexits.h.
constexpr int kHeardAtOnce = 4;  ///< A START takes a while.

/// Loop-confined.
class Agent {
 public:
  Agent(Commander commander, const sigset_t& worker_mask, io::Loop loop, io::Fd guard)
      : station_(std::move(commander), std::move(loop), guard.valid(), worker_mask,
                 [this](size_t rank, io::Output stream) { streams_.on_readable(rank, stream); }),
        branches_(worker_mask, station_.loop, station_.voice()),
        sync_(station_.voice()),
        surveyor_(station_.loop, station_.voice()),
        workers_(station_, surveyor_, [this] { orders_.carry_out(); }),
        orders_(station_, workers_),
        streams_(station_),
        starts_(station_, workers_),
        inquiry_(station_, worker_mask),
        reaper_(station_, workers_, orders_, streams_, branches_),
        following_(station_, orders_, streams_, std::move(guard)) {}

  int run(const std::string& version);

 private:
  Status open(const std::string& version);
  void step();
  [[nodiscard]] Time next_timer() const;
  void hear_some();
  void hear(const Message& message);
  void go_on(Time now);
  [[nodiscard]] bool is_fenced() const {
    return station_.course.state() == AgentCourse::State::kFenced;
  }

  // Each needs some of those above it.
  Station station_;
  Branches branches_;
  SyncTarget sync_;
  Surveyor surveyor_;
  WorkerService workers_;
  CourseOrders orders_;
  RankStreams streams_;
  RankStarts starts_;
  RankInquiry inquiry_;
  Reaper reaper_;
  Following following_;
};

int Agent::run(const std::string& version) {
  if (const Status status = open(version); !status.ok()) station_.say(Trouble{status.message()});
  while (monotonic_now() < following_.ends_at()) {
    step();
    if (is_fenced() && !station_.commander.unsent() && branches_.empty()) return 0;
  }
  const bool gives_up = following_.waited_in_vain();
  if (gives_up) station_.commander.give_up();
  (void)kill_descendants(kKillPatience);
  if (following_.ended_ranks()) return diagnosis::kSignalExit + SIGTERM;
  return gives_up ? kTryLater : 0;
}

Status Agent::open(const std::string& version) {
  CORRO_TRY(reaper_.open());
  return following_.open(version);
}

void Agent::step() {
  following_.find(monotonic_now());
  station_.loop.turn(next_timer());
  hear_some();
  if (!is_fenced()) streams_.flush_input();
  go_on(monotonic_now());
  surveyor_.tick(monotonic_now());
  inquiry_.tick(monotonic_now());
  if (sync_.busy()) sync_.advance();
  streams_.pause_or_resume();
  branches_.flush();
  station_.commander.flush_on(station_.loop);
}

Time Agent::next_timer() const {
  const Time now = monotonic_now();
  const Time sync = sync_.busy() ? now : Time::never();
  return std::min({station_.course.next_state(streams_.paused(), now), surveyor_.due(), sync,
                   inquiry_.due(now), following_.due(now)});
}

/// In between, the ranks that run already are read.
void Agent::hear_some() {
  for (int i = 0; i < kHeardAtOnce; ++i)
    if (const auto message = following_.take()) hear(*message);
}

void Agent::hear(const Message& message) {
  if (!station_.course.accepts(message.about)) return;
  std::visit(
      [&](const auto& body) {
        starts_.hear(message.about, body);
        inquiry_.hear(message.about, body);
        streams_.hear(message.about, body);
        branches_.hear(body);
        sync_.hear(body);
        surveyor_.hear(body);
      },
      message.body);
  station_.course.hear(message, monotonic_now());
  orders_.carry_out();
}

/// Looks at what ranks have left, where that matters.
void Agent::go_on(Time now) {
  if (station_.course.state() == AgentCourse::State::kFencing)
    station_.course.see_rest(descendants_of(getpid(), branches_.shells()), now);
  station_.course.drain(station_.ranks.any_output(), streams_.paused(), now);
  orders_.carry_out();
}

}  // namespace

int run_agent(Commander commander, const sigset_t& worker_mask, const std::string& version,
              io::Fd guard) {
  auto loop = io::Loop::create();
  if (!loop.ok()) return 1;
  Agent agent(std::move(commander), worker_mask, std::move(loop).value(), std::move(guard));
  return agent.run(version);
}

}  // namespace corro::agent
