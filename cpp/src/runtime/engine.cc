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

MemberId own_member(const EngineOptions& options) {
  return options.members.empty() ? options.rank
                                 : options.members[static_cast<size_t>(options.rank)];
}

Peers peers_of(const EngineOptions& options) {
  return Peers(own_member(options), options.connects);
}

collective::StagePool stages_of(const EngineOptions& options) {
  return collective::StagePool(*options.segment);
}

}  // namespace

Engine::Engine(EngineOptions options)
    : parts_{.options = std::move(options),
             .peers = peers_of(parts_.options),
             .stages = stages_of(parts_.options)},
      groups_(parts_) {}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  CORRO_CHECK(
      options.segment != nullptr && options.peers.size() == static_cast<size_t>(options.size),
      options.peers.size(), options.size);
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(options)));
  CORRO_TRY(engine->open());
  return engine;
}

Status Engine::open() {
  EngineOptions& options = parts_.options;
  parts_.recorder = std::move(options.recorder);
  if (parts_.recorder == nullptr) {
    CORRO_ASSIGN(parts_.recorder,
                 obs::FlightRecorder::create({.rank = options.rank, .size = options.size}));
  }
  CORRO_ASSIGN(parts_.executor, graph::Executor::create(graph::Plan{}, {}));
  if (options.members.empty()) {
    for (int32_t r = 0; r < options.size; ++r) options.members.push_back(r);
  }
  for (size_t r = 0; r < options.peers.size(); ++r)
    parts_.peers.add(options.members[r], std::move(options.peers[r]));
  return groups_.start_epoch(0, options.members, {});
}

void Engine::set_selection(collective::SelectionTable table) {
  parts_.options.selection = std::move(table);
}

Status Engine::start_epoch(uint32_t epoch, std::vector<MemberId> members) {
  const Status cause(Code::kCancelled,
                     fmt::format("epoch {} is over: its groups end with it", groups_.epoch()));
  CORRO_TRY(groups_.start_epoch(epoch, std::move(members), cause));
  parts_.peers.start_epoch(epoch);
  hear_early(world(), world().keys());
  return {};
}

Result<Group*> Engine::create_group(const std::vector<int32_t>& world_ranks,
                                    const std::string& name) {
  CORRO_ASSIGN(Group * group, groups_.create(name, world_ranks));
  if (group != nullptr) hear_early(*group, group->keys());
  return group;
}

/// What others said before this engine knew the keys.
void Engine::hear_early(Group& group, const std::vector<LaneKey>& keys) {
  GroupTable::Early early = groups_.take_early(keys);
  for (const PeerSaid& said : early.said) group.hear(said.from, said.control, now_);
  if (early.too_much_from >= 0) {
    const int32_t who = group.facts().world_rank(group.facts().index_of(early.too_much_from));
    group.fail({{Code::kResourceExhausted,
                 fmt::format("rank {} said more of this group than is kept until it is made on "
                             "rank {}",
                             who, world().facts().rank),
                 {.rank = who}},
                who},
               Group::News::kFound, now_);
  }
}

Result<LoadedPlan*> Engine::load(Group& group, const graph::Plan& plan,
                                 const LoadOptions& options) {
  CORRO_TRY(group.failure());
  CORRO_ASSIGN(LoadedPlan * loaded, group.plans().load(plan, options));
  ++plans_;
  groups_.add_keys(group, loaded->part().keys());
  hear_early(group, loaded->part().keys());
  return loaded;
}

void Engine::unload(Group& group, LoadedPlan& plan) {
  if (!plan.idle())
    plan.stop({Code::kCancelled, "the plan was unloaded while services were in flight"}, now_);
  groups_.unload(group, plan);
  --plans_;
}

void Engine::submit(Group& group, const std::shared_ptr<WorkState>& work, Time now) {
  CORRO_CHECK(!work->requests.empty());
  const Duration since = now - std::exchange(now_, now);
  // An operation that had returned here may have failed elsewhere meanwhile: this call is told.
  if (group.by_messages() && since > kLookAgain) {
    (void)parts_.peers.poll(Peers::Look::kReadable);
    (void)take_events();
  }
  group.submit(work, now);
}

// -- progress -------------------------------------------------------------------------------------

bool Engine::poll(Time now) {
  if (closed_) return false;
  now_ = now;
  ++parts_.counters.polls;
  const bool launched = parts_.executor->poll(now);
  const bool names = names_wait();
  const bool due = idle_polls_ >= kIdlePollsPerLook || names || parts_.options.commit;
  // What was launched sends first: a look before that is most often a system call for nothing. But
  // not twice in a row, since a lane may launch something in every pass.
  skipped_ = launched && !skipped_ && !due;
  bool moved = launched;
  if (due || (parts_.message_flights > 0 && !skipped_))
    moved = parts_.peers.poll(due ? Peers::Look::kReadable : Peers::Look::kOwing) || moved;
  moved = take_events() || moved;
  groups_.for_each([&moved, now](Group& group) { moved = group.poll(now) || moved; });
  if (parts_.flights > 0 || names) {
    const bool check_departed = departures_ && !moved;
    groups_.for_each([check_departed, now](Group& group) {
      if (check_departed) group.check_departed(now);
      group.check(now);
    });
  }
  idle_polls_ = moved || idle_polls_ >= kIdlePollsPerLook ? 0 : idle_polls_ + 1;
  return moved;
}

bool Engine::names_wait() const {
  bool wait = false;
  groups_.for_each([&wait](const Group& group) { wait = wait || group.listens(); });
  return wait;
}

bool Engine::take_events() {
  bool lost = false;
  while (const auto event = parts_.peers.take_event()) {
    take_event(*event);
    lost = lost || std::holds_alternative<PeerLost>(*event);
  }
  return lost;
}

void Engine::take_event(const PeerEvent& event) {
  if (const auto* said = std::get_if<PeerSaid>(&event)) {
    Group* group = groups_.find(said->control.lane);
    if (group == nullptr) return groups_.keep_early(*said);
    group->hear(said->from, said->control, now_);
  } else if (const auto* stray = std::get_if<PeerStray>(&event)) {
    Group* group = groups_.find(stray->key.lane);
    if (group != nullptr) group->judge(stray->from, stray->key, stray->signature);
  } else if (const auto* lost = std::get_if<PeerLost>(&event)) {
    ++parts_.counters.ranks_lost;
    groups_.for_each([&](Group& group) { group.lose(lost->member, now_); });
    groups_.free_quiet_fabrics();
  } else {
    departures_ = true;
  }
}

bool Engine::plans_have_news() const {
  bool news = false;
  if (closed_ || plans_ == 0) return news;
  groups_.for_each([&news](Group& group) { news = news || group.plans().has_news(); });
  return news;
}

bool Engine::idle() const {
  return parts_.flights == 0 && !names_wait() && !plans_have_news() && !parts_.peers.unsent();
}

Time Engine::next_deadline() const {
  Time earliest = Time::never();
  groups_.for_each(
      [&earliest](const Group& group) { earliest = std::min(earliest, group.next_deadline()); });
  return earliest;
}

void Engine::set_sleeping(bool asleep) {
  uint32_t depth = collective::kAwake;
  if (asleep) {
    idle_polls_ = kIdlePollsPerLook;  // the last look before the sleep is at everything
    depth = parts_.flights == 0 && !names_wait() ? collective::kIdle : collective::kAsleep;
    groups_.for_each([&depth](const Group& group) {
      if (group.waits_for_lines()) depth = collective::kAsleepForLines;
    });
  }
  auto& word = segment()->header().sleeping;
  if (word.load(std::memory_order_relaxed) != depth) word.store(depth, std::memory_order_seq_cst);
}

// -- the end --------------------------------------------------------------------------------------

/// Moves what a dead member's last bytes can still complete, and no other group, whose queue may be
/// long; true if anything of it moved.
bool Engine::poll_groups_of(MemberId member) {
  bool moved = parts_.peers.poll(member);
  (void)parts_.peers.poll(Peers::Look::kReadable);  // Other members' messages may be needed, too.
  (void)take_events();
  moved = parts_.executor->poll(now_) || moved;
  groups_.for_each([&](Group& group) {
    if (group.facts().index_of(member) >= 0) moved = group.poll(now_) || moved;
  });
  return moved;
}

void Engine::peer_ended(MemberId member, const std::string& how) {
  if (closed_) return;
  for (int i = 0; i < kPollsForTheDead && poll_groups_of(member); ++i) {
  }
  if (!parts_.peers.departed(member)) {
    parts_.peers.lose(member, how);
    (void)take_events();
    return;
  }
  groups_.for_each([this](Group& group) { group.check_departed(now_); });
}

void Engine::fail_all(const Status& cause) {
  const int32_t rank = world().facts().rank;
  const Status mine(cause.code(), fmt::format("rank {}: {}", rank, cause.message()),
                    {.rank = rank});
  groups_.for_each([&](Group& group) { group.fail({mine, rank}, Group::News::kFound, now_); });
}

void Engine::close_descriptors() {
  ::close(parts_.recorder->fd());
  ::close(segment()->fd());
  parts_.peers.close_descriptors();
}

void Engine::close() {
  if (closed_) return;
  const Status cause(Code::kCancelled, "the engine was closed");
  groups_.for_each([&cause](Group& group) { group.close(cause); });
  for (const MemberId member : parts_.peers.close(segment()->header())) parts_.options.wake(member);
  closed_ = true;
}

}  // namespace corro::runtime
