#include "runtime/engine.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

/// While nothing is awaited over streams, they are looked at this often, for goodbyes and
/// cancellations.
constexpr uint32_t kIdlePollsPerLook = 32;

/// After a pause longer than this, a call first reads what arrived in the meantime.
constexpr Duration kLookAgain = std::chrono::microseconds(20);

/// Enough for all that a dead process can have left behind; a living one that floods cannot hold
/// this.
constexpr int kPollsForTheDead = 100'000;

const obs::Metrics& metrics_of(const EngineOptions& options) { return options.recorder->metrics(); }

Peers peers_of(const EngineOptions& options) {
  return Peers(options.members[static_cast<size_t>(options.rank)], options.connects,
               metrics_of(options), options.recorder->links());
}

collective::SegmentPool scratch_of(const EngineOptions& options) {
  return collective::SegmentPool(*options.segment);
}

collective::StagePool stages_of(const EngineOptions& options) {
  return collective::StagePool(*options.segment);
}

}  // namespace

Engine::Engine(EngineOptions options)
    : parts_{.options = std::move(options),
             .peers = peers_of(parts_.options),
             .stages = stages_of(parts_.options),
             .scratch = scratch_of(parts_.options),
             .metrics = metrics_of(parts_.options)},
      groups_(parts_),
      timeline_(parts_) {}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  CORRO_CHECK(
      options.segment != nullptr && options.peers.size() == static_cast<size_t>(options.size),
      options.peers.size(), options.size);
  if (options.members.empty()) {
    for (int32_t r = 0; r < options.size; ++r) options.members.push_back(r);
  }
  if (options.recorder == nullptr) {
    CORRO_ASSIGN(options.recorder,
                 obs::FlightRecorder::create({.rank = options.rank, .size = options.size}));
  }
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(options)));
  EngineParts& parts = engine->parts_;
  parts.recorder = std::move(parts.options.recorder);
  CORRO_ASSIGN(parts.executor, graph::Executor::create(graph::Plan{}, {}));
  for (size_t r = 0; r < parts.options.peers.size(); ++r)
    parts.peers.add(parts.options.members[r], std::move(parts.options.peers[r]));
  CORRO_TRY(engine->groups_.start_epoch(0, parts.options.members, Time{}));
  return engine;
}

void Engine::set_selection(collective::SelectionTable table) {
  parts_.options.selection = std::move(table);
}

void Engine::serve(std::unique_ptr<collective::ServedLinks> aggregators) {
  CORRO_CHECK(parts_.aggregators == nullptr);
  parts_.aggregators = std::move(aggregators);
  groups_.world().serve();
}

Status Engine::start_epoch(uint32_t epoch, std::vector<MemberId> members) {
  CORRO_TRY(groups_.start_epoch(epoch, std::move(members), now_));
  parts_.peers.start_epoch(epoch);
  parts_.epoch_ends = false;
  return {};
}

void Engine::submit(Group& group, const std::shared_ptr<WorkState>& work, Time now) {
  CORRO_CHECK(!work->requests.empty());
  const Duration since = now - std::exchange(now_, now);
  // An operation that had returned here may have failed elsewhere meanwhile: this call is told.
  if (group.by_messages() && since > kLookAgain) {
    (void)parts_.peers.poll(Peers::Look::kReadable);
    (void)take_events();
  }
  groups_.submit(group, work, now);
}

void Engine::become(Group& group, NowOperation& begun, const std::shared_ptr<WorkState>& work,
                    Time now) {
  groups_.activate(group);
  begun.become(work, now);
}

// -- progress -------------------------------------------------------------------------------------

bool Engine::poll(Time now) {
  if (closed_) return false;
  now_ = now;
  parts_.metrics.add(obs::Metric::kPolls);
  const bool launched = parts_.executor->poll(now);
  const bool names = groups_.names_wait();
  const bool due = idle_polls_ >= kIdlePollsPerLook || names || parts_.options.commit;
  // What was launched sends first: a look before that is most often a system call for nothing. But
  // not twice in a row, since a lane may launch something in every pass.
  skipped_ = launched && !skipped_ && !due;
  bool moved = launched;
  if (due || (parts_.message_flights > 0 && !skipped_))
    moved = parts_.peers.poll(due ? Peers::Look::kReadable : Peers::Look::kOwing) || moved;
  moved = take_events() || moved;
  moved = groups_.poll(now) || moved;
  if (parts_.flights > 0 || names) {
    if (departures_ && !moved) groups_.check_departed(now);
    groups_.check(now);
  }
  idle_polls_ = moved || idle_polls_ >= kIdlePollsPerLook ? 0 : idle_polls_ + 1;
  return moved;
}

bool Engine::take_events() {
  bool lost = false;
  while (const auto event = parts_.peers.take_event()) {
    const auto* said = std::get_if<PeerSaid>(&*event);
    if (said != nullptr && said->control.kind == wire::ControlKind::kTimeline) {
      timeline_.hear(said->from, said->control, now_);
      continue;
    }
    groups_.hear(*event, now_);
    lost = lost || std::holds_alternative<PeerLost>(*event);
    departures_ = departures_ || std::holds_alternative<PeerDeparted>(*event);
  }
  return lost;
}

bool Engine::idle() const {
  return parts_.flights == 0 && !groups_.names_wait() && (closed_ || !groups_.plans_have_news()) &&
         !parts_.peers.unsent();
}

void Engine::set_sleeping(bool asleep) {
  uint32_t depth = collective::kAwake;
  if (asleep) {
    idle_polls_ = kIdlePollsPerLook;  // the last look before the sleep is at everything
    depth = parts_.flights == 0 && !groups_.names_wait() ? collective::kIdle : collective::kAsleep;
    if (groups_.waits_for_lines()) depth = collective::kAsleepForLines;
  }
  auto& word = segment()->header().sleeping;
  if (word.load(std::memory_order_relaxed) != depth) word.store(depth, std::memory_order_seq_cst);
}

// -- the end --------------------------------------------------------------------------------------

void Engine::peer_ended(MemberId member, const std::string& how) {
  if (closed_) return;
  // Moves what a dead member's last bytes can still complete, and no other group, whose queue may
  // be long.
  bool moved = true;
  for (int i = 0; moved && i < kPollsForTheDead; ++i) {
    moved = parts_.peers.poll(member);
    (void)parts_.peers.poll(Peers::Look::kReadable);  // Other members' messages may be needed, too.
    (void)take_events();
    moved = parts_.executor->poll(now_) || moved;
    moved = groups_.poll_with(member, now_) || moved;
  }
  if (!parts_.peers.departed(member)) {
    parts_.peers.lose(member, how);
    (void)take_events();
    return;
  }
  groups_.check_departed(now_);
}

void Engine::fail_all(const Status& cause) {
  const int32_t rank = world().facts().rank;
  const Status mine(cause.code(), fmt::format("rank {}: {}", rank, cause.message()),
                    {.rank = rank});
  groups_.for_each([&](Group& group) { group.fail({mine, rank}, Group::News::kFound, now_); });
}

void Engine::expect_epoch_end() {
  parts_.epoch_ends = true;
  groups_.check_departed(now_);
}

void Engine::end_epoch(const std::string& why) {
  const Status cause(Code::kAborted, fmt::format("the epoch has ended: {}", why));
  const int32_t rank = world().facts().rank;
  groups_.for_each([&](Group& group) { group.fail({cause, rank}, Group::News::kHeard, now_); });
}

void Engine::close_descriptors() {
  ::close(parts_.recorder->fd());
  ::close(segment()->fd());
  parts_.peers.close_descriptors();
  if (parts_.aggregators != nullptr) parts_.aggregators->close_in_child();
}

void Engine::close() {
  if (closed_) return;
  const Status cause(Code::kCancelled, "the engine was closed");
  groups_.for_each([&cause](Group& group) { group.close(cause); });
  if (parts_.aggregators != nullptr) parts_.aggregators->end();
  for (const MemberId member : parts_.peers.close(segment()->header())) parts_.options.wake(member);
  closed_ = true;
}

}  // namespace corro::runtime
