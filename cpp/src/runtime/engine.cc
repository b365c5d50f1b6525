#include "runtime/engine.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

/// While no operation uses messages, endpoints are looked at this often, for goodbyes and
/// cancellations.
constexpr uint32_t kIdlePollsPerEndpointCheck = 32;

constexpr size_t kMostEarlyMessages = 4096;

/// A call after so long a pause looks at what has come meanwhile first.
constexpr Duration kLookAgain = std::chrono::microseconds(20);

/// How often close() tries to send what is left.
constexpr int kMostFlushes = 1000;

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)),
      endpoints_(static_cast<size_t>(options_.size)),
      lost_(static_cast<size_t>(options_.size)),
      departed_(static_cast<size_t>(options_.size)) {}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  CORRO_CHECK(
      options.segment != nullptr && options.peers.size() == static_cast<size_t>(options.size),
      options.peers.size(), options.size);
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(options)));
  CORRO_TRY(engine->open_world());
  return engine;
}

Status Engine::open_world() {
  recorder_ = std::move(options_.recorder);
  if (recorder_ == nullptr) {
    CORRO_ASSIGN(recorder_, obs::FlightRecorder::create({.rank = rank(), .size = size()}));
  }
  CORRO_ASSIGN(executor_, graph::Executor::create(graph::Plan{}, {}));
  descriptors_ = {recorder_->fd(), options_.segment->fd()};
  for (int32_t r = 0; r < size(); ++r) {
    EnginePeer& peer = options_.peers[static_cast<size_t>(r)];
    if (peer.stream == nullptr) continue;
    if (peer.stream->poll_fd() >= 0) descriptors_.push_back(peer.stream->poll_fd());
    endpoints_[static_cast<size_t>(r)] = std::make_unique<transport::Endpoint>(
        std::move(peer.stream), [this, r](const wire::Control& control) { on_control(r, control); },
        transport::EndpointLimits{},
        [this, r](const transport::MessageKey& key, const SignatureBits& signature) {
          strays_.push_back({r, key, signature});
        });
  }
  std::vector<int32_t> everyone(static_cast<size_t>(size()));
  for (int32_t r = 0; r < size(); ++r) everyone[static_cast<size_t>(r)] = r;
  return create_group(everyone).status();
}

void Engine::set_selection(collective::SelectionTable table) {
  options_.selection = std::move(table);
  for (const auto& group : groups_) group->forget_schedules();
}

// -- groups ---------------------------------------------------------------------------------------

Result<Group*> Engine::create_group(const std::vector<int32_t>& members) {
  const uint32_t lane = next_lane_++;
  std::vector<int32_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool unique = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (members.empty() || !unique || sorted.front() < 0 || sorted.back() >= size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a group needs distinct ranks between 0 and {}, got [{}]", size() - 1,
                              fmt::join(members, ", ")));
  }
  if (std::find(members.begin(), members.end(), rank()) == members.end())
    return static_cast<Group*>(nullptr);
  CORRO_ASSIGN(Group * group, open_group(members, lane));
  hear_early(*group);
  return group;
}

Result<Group*> Engine::open_group(const std::vector<int32_t>& members, uint32_t lane) {
  auto group = std::make_unique<Group>();
  group->lane = lane;
  group->members = members;
  group->rank =
      static_cast<int32_t>(std::find(members.begin(), members.end(), rank()) - members.begin());
  group->links = {.lane = lane, .rank = group->rank, .endpoints = {}, .world_ranks = members};
  for (const int32_t member : members) {
    group->links.endpoints.push_back(endpoints_[static_cast<size_t>(member)].get());
  }
  CORRO_TRY(open_board(*group));
  group->selection = &options_.selection;
  group->executor_lane = executor_->add_lane({.name = fmt::format("group {}", lane),
                                              .order = graph::LaneOrder::kAgreed,
                                              .depth = collective::kLines},
                                             inline_lane_);
  for (const int32_t member : members) {
    const std::string& how = lost_[static_cast<size_t>(member)];
    if (!how.empty()) {
      group->failed = {
          Code::kUnavailable, fmt::format("rank {} was lost: {}", member, how), {.rank = member}};
    }
  }
  groups_.push_back(std::move(group));
  if (!groups_.back()->failed.ok()) settle(*groups_.back());
  return groups_.back().get();
}

Status Engine::open_board(Group& group) {
  close_quiet_boards();
  if (!options_.use_board || group.size() > collective::kMaxBoardRanks) return {};
  std::vector<collective::Board::Member> members;
  for (const int32_t member : group.members) {
    const EnginePeer& peer = options_.peers[static_cast<size_t>(member)];
    if (member != rank() && peer.segment == nullptr) return {};
    auto* segment = member == rank() ? options_.segment.get() : peer.segment.get();
    members.push_back({.segment = segment, .world_rank = member, .pid = peer.pid});
  }
  CORRO_ASSIGN(group.board, collective::Board::create({.lane = group.lane}, group.rank,
                                                      std::move(members), options_.wake));
  return {};
}

Status Engine::destroy_group(Group& group) {
  CORRO_CHECK(&group != groups_.front().get(), "the world cannot be destroyed");
  if (in_use(group)) {
    return {Code::kFailedPrecondition,
            "a group cannot be destroyed while it has operations in flight"};
  }
  for (Group* lane : group.named_lanes) {
    if (lane != nullptr) CORRO_TRY(destroy_group(*lane));
  }
  CORRO_TRY(executor_->remove_lane(group.executor_lane));
  if (group.board != nullptr) {
    group.board->leave();
    quiet_boards_.push_back(std::move(group.board));
  }
  const auto held = std::find_if(groups_.begin(), groups_.end(),
                                 [&group](const auto& one) { return one.get() == &group; });
  if (commits(group)) retire(std::move(*held));
  groups_.erase(held);
  close_quiet_boards();
  return {};
}

/// A section goes once nobody can look at it any more: not the dead, nor those who have left.
void Engine::close_quiet_boards() {
  const auto gone = [this](int32_t member) { return is_gone(member); };
  std::erase_if(quiet_boards_, [&gone](const auto& board) { return board->forsaken(gone); });
}

Group* Engine::group_of_lane(uint32_t lane) {
  for (const auto& group : groups_) {
    if (group->lane == (lane & ~collective::kPairLaneBit)) return group.get();
  }
  return nullptr;
}

// -- groups that are made without a word ----------------------------------------------------------

bool Engine::of_a_later_group(uint32_t lane) const { return group_lane(lane) >= next_lane_; }

/// A member may be faster than this rank: what it says of the group is kept until that is made.
void Engine::keep_early(int32_t from, const wire::Control& control) {
  size_t kept = 0;
  for (const auto& [lane, early] : early_) kept += early.said.size();
  const uint32_t lane = group_lane(control.lane);
  if (kept < kMostEarlyMessages) {
    early_[lane].said.emplace_back(from, control);
  } else if (early_.size() < kMostEarlyMessages) {
    early_[lane].too_much_from = from;
  }
}

void Engine::hear_early(Group& group) {
  const auto found = early_.find(group.lane);
  if (found == early_.end()) return;
  const Early early = std::move(found->second);
  early_.erase(found);
  for (const auto& [from, control] : early.said) on_control(from, control);
  if (early.too_much_from < 0) return;
  fail_group(
      group,
      {Code::kResourceExhausted,
       fmt::format("rank {} said more of this group than is kept until it is made on rank {}",
                   early.too_much_from, rank()),
       {.rank = early.too_much_from}},
      early.too_much_from);
}

// -- submission -----------------------------------------------------------------------------------

void Engine::submit(Group& group, const std::shared_ptr<WorkState>& work, Time now) {
  CORRO_CHECK(!work->requests.empty());
  const Duration since = now - now_;
  now_ = now;
  // An operation that had returned here may have failed elsewhere meanwhile: this call is told.
  if (group.board == nullptr && since > kLookAgain) (void)poll_endpoints(true);
  const size_t count =
      work->requests.size();  // a refused work may be done and gone before the loop ends
  for (size_t i = 0; i < count; ++i) {
    if (work->named) {
      submit_named(group, work, i, now);
    } else {
      submit_one(group, work, i, now);
    }
  }
}

Status Engine::refusal(Group& group, const collective::OpRequest& request) {
  if (!group.failed.ok()) {
    const int culprit = group.failed.detail() ? group.failed.detail()->rank : -1;
    const std::string name(name_of(request.kind));
    return {group.failed.code(),
            name + ": " + group.failed.message(),
            {.rank = culprit, .op = name, .phase = std::string(name_of(obs::Phase::kQueued))}};
  }
  if (!group.next_error.ok()) return std::exchange(group.next_error, Status());
  return collective::validate(request, group.rank, group.size());
}

void Engine::submit_one(Group& group, const std::shared_ptr<WorkState>& work, size_t index,
                        Time now) {
  const collective::OpRequest& request = work->requests[index];
  if (Status refused = refusal(group, request); !refused.ok()) {
    ++counters_.failures;
    work->finish_one(refused);
    return;
  }
  begin(group, work, index, now);
}

Time Engine::deadline_of(const collective::OpRequest& request, Time now) const {
  return now + (request.timeout > Duration::zero() ? request.timeout : options_.timeout);
}

/// Gives an operation its id and place in the group's lane.
void Engine::begin(Group& group, const std::shared_ptr<WorkState>& work, size_t index, Time now) {
  const collective::OpRequest& request = work->requests[index];
  auto flight = make_flight(group, work, request, now);
  flight->op = is_pair(request.kind)
                   ? group.pair_sequences[{request.kind, request.root, request.tag}]++
                   : group.next_op++;
  flight->record = recorder_->begin(record_of(group, request, flight->op));
  ++counters_.operations;
  enqueue(std::move(flight));
}

std::unique_ptr<Flight> Engine::make_flight(Group& group, const std::shared_ptr<WorkState>& work,
                                            const collective::OpRequest& request, Time now) const {
  auto flight = std::make_unique<Flight>();
  flight->group = &group;
  flight->work = work;
  flight->request = &request;
  flight->submitted = flight->waits_since = now;
  flight->deadline = deadline_of(request, now);
  return flight;
}

obs::OpRecord Engine::record_of(const Group& group, const collective::OpRequest& request,
                                uint64_t op) {
  return {.op_id = op,
          .lane = group.lane,
          .kind = request.kind,
          .dtype = request.dtype,
          .reduce_op = request.reduce_op,
          .root = request.root,
          .count = request.count,
          .name = request.name};
}

void Engine::enqueue(std::unique_ptr<Flight> flight) {
  ++flights_;
  Flight* raw = flight.get();
  Group& group = *raw->group;
  if (is_pair(raw->request->kind)) {
    group.pairs.push_back(std::move(flight));
    launch(*raw, now_);
    return;
  }
  group.flights.push_back(std::move(flight));
  auto ticket =
      executor_->submit(group.executor_lane, {.name = name_of(raw->request->kind),
                                              .launch =
                                                  [this, raw](const graph::Firing& firing) {
                                                    raw->ticket = firing.ticket;
                                                    launch(*raw, now_);
                                                  },
                                              .on_done = {}});
  CORRO_CHECK(ticket.ok(), ticket.status().message());
}

// -- small and at once ----------------------------------------------------------------------------

bool Engine::begin_quick(Group& group, const collective::OpRequest& request,
                         std::optional<Quick>& quick) {
  collective::Board* board = group.board.get();
  if (board == nullptr || commits(group) || group.busy() || is_pair(request.kind) ||
      !request.counts.empty() || !request.send_counts.empty() || !group.failed.ok() ||
      !group.next_error.ok() ||
      !collective::validate_sizes(request, group.rank, group.size()).ok()) {
    return false;
  }
  quick.emplace(group, request);
  if (!quick->exchange_.certainly_small() || board->missing_member() >= 0 ||
      !board->line_free(group.next_op) ||
      !collective::validate_buffers(request, quick->exchange_.shape(), group.rank).ok()) {
    quick.reset();
    return false;
  }
  quick->record_ =
      recorder_->begin(record_of(group, request, group.next_op++), obs::Phase::kExchange);
  ++counters_.operations;
  quick->exchange_.publish();
  return true;
}

bool Engine::finish_quick(Quick& quick, Status& status) {
  if (quick.exchange_.arrived() < quick.exchange_.size()) return false;
  status = quick.exchange_.agreement();
  if (status.ok()) status = quick.exchange_.take_small();
  if (!status.ok()) ++counters_.failures;
  quick.group_->board->set_completed(quick.exchange_.op() + 1);
  recorder_->end(quick.record_, status.code());
  return true;
}

void Engine::slow_down(Quick& quick, const std::shared_ptr<WorkState>& work, Time now) {
  now_ = now;
  auto flight = make_flight(*quick.group_, work, work->requests.front(), now);
  flight->op = quick.exchange_.op();
  flight->record = quick.record_;
  flight->published = true;
  enqueue(std::move(flight));
}

bool Engine::uses_messages(const Flight& flight) const {
  const Group& group = *flight.group;
  return group.board == nullptr || is_pair(flight.request->kind) || commits(group);
}

void Engine::launch(Flight& flight, Time /*now*/) {
  Group& group = *flight.group;
  flight.operation = group.make_operation(flight);
  if (uses_messages(flight)) ++message_flights_;
  recorder_->set_phase(flight.record, obs::Phase::kExchange);
  if (is_pair(flight.request->kind)) return;
  flight.signature = collective::signature_of(*flight.request, group.size()).pack();
  if (const auto found = group.early.find(flight.op); found != group.early.end()) {
    const auto [from, signature] = found->second;
    group.early.erase(found);
    judge(from, group, flight.op, signature);
    if (flight.over) return;
  }
  if (const auto found = group.cancelled.find(flight.op); found != group.cancelled.end()) {
    conclude(flight, describe_failure(flight, found->second));
    group.cancelled.erase(found);
  }
}

// -- progress -------------------------------------------------------------------------------------

bool Engine::poll(Time now) {
  if (closed_) return false;
  now_ = now;
  ++counters_.polls;
  const bool launched = executor_->poll(now);
  bool moved = launched;
  const bool due = idle_polls_ >= kIdlePollsPerEndpointCheck;
  const bool everyone = due || named_busy();
  // What was launched sends first: a look before that is most often a system call for nothing. But
  // not twice in a row, since a lane may launch something in every pass.
  skipped_ = launched && !skipped_ && !everyone;
  if (everyone || (message_flights_ > 0 && !skipped_))
    moved = poll_endpoints(everyone || idle_polls_ == 0) || moved;
  awaited_ = kNobody;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->busy()) moved = poll_group(*groups_[i]) || moved;
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->named != nullptr) moved = poll_named(*groups_[i], now) || moved;
  }
  if (flights_ > 0 || named_busy()) {
    if (any_departed_ && !moved) check_departed();
    check_deadlines(now);
  }
  if (options_.commit) check_settling(now);
  idle_polls_ = moved || idle_polls_ >= kIdlePollsPerEndpointCheck ? 0 : idle_polls_ + 1;
  return moved;
}

/// Looks at every peer's stream or, as long as nothing moves, at those that matter now: each look
/// is a system call.
bool Engine::poll_endpoints(bool everyone) {
  bool moved = false;
  for (int32_t r = 0; r < size(); ++r) {
    transport::Endpoint* endpoint = endpoints_[static_cast<size_t>(r)].get();
    if (endpoint == nullptr || !lost_[static_cast<size_t>(r)].empty()) continue;
    if (!everyone && awaited_ >= 0 && awaited_ != r && !endpoint->has_unsent()) continue;
    moved = endpoint->progress() || moved;
    if (endpoint->closed() && !departed_[static_cast<size_t>(r)]) {
      peer_lost(r, endpoint->describe());
      moved = true;
    }
  }
  judge_strays();
  return moved;
}

bool Engine::poll_group(Group& group) {
  bool moved = false;
  bool oldest = true;
  for (size_t i = 0; i < group.flights.size(); ++i) {
    Flight& flight = *group.flights[i];
    if (flight.over) continue;
    if (flight.operation == nullptr) break;  // started in order: none behind it has started
    moved = poll_flight(flight, oldest) || moved;
    if (!flight.over && !flight.voted) oldest = false;
  }
  for (size_t i = 0; i < group.pairs.size(); ++i) {
    if (!group.pairs[i]->over) moved = poll_flight(*group.pairs[i], true) || moved;
  }
  if (moved) sweep(group);
  return moved;
}

bool Engine::poll_flight(Flight& flight, bool oldest) {
  if (flight.voted) {
    awaited_ = kSeveral;
    return false;
  }
  const obs::Phase before = flight.operation->phase();
  const int32_t waited = flight.operation->waiting_for();
  const collective::Progress progress = flight.operation->poll(oldest);
  if (progress == collective::Progress::kDone) {
    const Status outcome = flight.operation->status();  // conclude() destroys the operation
    conclude(flight, outcome);
    return true;
  }
  const int32_t waits = flight.operation->waiting_for();
  const int32_t world = waits < 0 ? -1 : flight.group->members[static_cast<size_t>(waits)];
  awaited_ = awaited_ == kNobody || awaited_ == world ? world : kSeveral;
  if (progress == collective::Progress::kMoved || waits != waited) {
    flight.waits_since = now_;
    flight.suspects = false;
  }
  if (flight.operation->phase() != before || waits != waited) {
    recorder_->set_phase(flight.record, flight.operation->phase(), world);
  }
  return progress == collective::Progress::kMoved;
}

/// An operation has ended here by itself or by a cancellation. Its failure is the others' too where
/// they cannot see it.
void Engine::conclude(Flight& flight, const Status& outcome) {
  Group& group = *flight.group;
  if (flight.operation != nullptr && flight.operation->fatal() && group.failed.ok()) {
    const int32_t culprit = outcome.detail() ? outcome.detail()->rank : rank();
    return fail_group(group, outcome, culprit);
  }
  const bool pair = is_pair(flight.request->kind);
  if (outcome.ok() && !pair && commits(group)) return vote(flight);
  const bool by_messages = (group.board == nullptr || commits(group)) && !pair;
  const bool first =
      flight.operation != nullptr && flight.operation->status().code() == outcome.code();
  const bool decides = commits(group) && decider_of(group) == rank();
  if (!outcome.ok() && by_messages && (first || decides)) {
    tell_group(group, wire::ControlKind::kCancel, flight.op, outcome, -1);
  }
  end(flight, outcome);
}

void Engine::end(Flight& flight, const Status& status) {
  if (flight.over) return;
  Group& group = *flight.group;
  const bool pair = is_pair(flight.request->kind);
  const bool started = flight.operation != nullptr && !pair;
  if (flight.operation != nullptr) {
    if (!status.ok() && !flight.voted) flight.operation->abandon();
    if (uses_messages(flight)) --message_flights_;
    flight.operation.reset();
    if (!pair) executor_->complete(flight.ticket);
  }
  flight.over = true;
  // What never started must not push out what may be asked for.
  if (started || (!pair && !commits(group))) {
    group.past_of(flight.op) = {flight.op, flight.signature, !status.ok()};
    group.closing_rounds.votes.erase(flight.op);
  }
  --flights_;
  if (!status.ok()) ++counters_.failures;
  recorder_->end(flight.record, status.code());
  flight.request = nullptr;
  const std::shared_ptr<WorkState> work = std::move(flight.work);
  work->finish_one(status);
}

/// Forgets operations that are over, and tells the board how far this rank is.
void Engine::sweep(Group& group) {
  const uint64_t before = group.completed();
  while (!group.flights.empty() && group.flights.front()->over) group.flights.pop_front();
  std::erase_if(group.pairs, [](const auto& flight) { return flight->over; });
  const uint64_t completed = group.completed();
  if (completed == before) return;
  if (group.board != nullptr) {
    group.board->set_completed(completed);
    return;
  }
  for (transport::Endpoint* endpoint : group.links.endpoints) {
    if (endpoint != nullptr) endpoint->retire_below(group.lane, completed);
  }
}

bool Engine::unsent() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const auto& endpoint) {
    return endpoint != nullptr && !endpoint->closed() && endpoint->has_unsent();
  });
}

bool Engine::idle() const {
  const bool listens = options_.commit && size() > 1 && !closed_;
  return quiet() && !listens;
}

bool Engine::quiet() const { return flights_ == 0 && !named_busy() && !unsent(); }

Time Engine::next_deadline() const {
  Time earliest = Time::never();
  for (const auto& group : groups_) {
    for (const auto& flight : group->flights) {
      if (flight->over || !group->failed.ok()) continue;
      earliest = std::min({earliest, flight->suspect_at(), flight->deadline});
      if (tells(*flight) && flight->told < 0) earliest = std::min(earliest, flight->tell_at());
    }
    for (const auto& flight : group->pairs) {
      if (!flight->over) earliest = std::min({earliest, flight->suspect_at(), flight->deadline});
    }
    if (group->named != nullptr) earliest = std::min(earliest, group->named->next_check());
    if (!group->closing_rounds.settled)
      earliest = std::min(earliest, group->closing_rounds.settle_by);
  }
  for (const auto& group : retired_) {
    if (!group->closing_rounds.settled)
      earliest = std::min(earliest, group->closing_rounds.settle_by);
  }
  return earliest;
}

void Engine::set_sleeping(bool asleep) {
  uint32_t depth = collective::kAwake;
  if (asleep) {
    idle_polls_ = kIdlePollsPerEndpointCheck;  // the last look before the sleep is at everything
    depth = flights_ == 0 ? collective::kIdle : collective::kAsleep;
    for (const auto& group : groups_) {
      for (const auto& flight : group->flights) {
        const bool queued =
            flight->operation != nullptr && flight->operation->phase() == obs::Phase::kQueued;
        if (!flight->over && queued) depth = collective::kAsleepForLines;
      }
    }
  }
  auto& word = options_.segment->header().sleeping;
  if (word.load(std::memory_order_relaxed) != depth) word.store(depth, std::memory_order_seq_cst);
}

// -- the end --------------------------------------------------------------------------------------

void Engine::close_descriptors() {
  for (const int fd : descriptors_) ::close(fd);
}

void Engine::close() {
  if (closed_) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = *groups_[i];
    const Status cause(Code::kCancelled, "the engine was closed");
    // Who is late in what is in flight must not take it for whole.
    if (group.board != nullptr && !group.flights.empty())
      group.board->set_failed(Code::kUnavailable, rank());
    for (const auto& flight : group.pairs) end(*flight, cause);
    for (const auto& flight : group.flights) end(*flight, cause);
    (void)executor_->cancel_pending(group.executor_lane, cause);
    if (group.failed.ok()) group.failed = cause;
    group.flights.clear();
    group.pairs.clear();
  }
  for (const auto& group : groups_) {
    if (group->named != nullptr) group->named->fail({Code::kCancelled, "the engine was closed"});
  }
  tell_all_commits();
  for (const auto& endpoint : endpoints_) {
    if (endpoint == nullptr || endpoint->closed()) continue;
    endpoint->send_control({.kind = wire::ControlKind::kGoodbye});
  }
  for (int i = 0; i < kMostFlushes && unsent(); ++i) (void)poll_endpoints(true);
  for (const auto& endpoint : endpoints_) {
    if (endpoint != nullptr && !endpoint->closed()) endpoint->close();
  }
  closed_ = true;
}

transport::EndpointCounters Engine::message_counters() const {
  transport::EndpointCounters total;
  for (const auto& endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    const auto& one = endpoint->counters();
    total.messages_sent += one.messages_sent;
    total.messages_received += one.messages_received;
    total.bytes_sent += one.bytes_sent;
    total.bytes_received += one.bytes_received;
    total.bounced += one.bounced;
    total.pauses += one.pauses;
  }
  return total;
}

}  // namespace corro::runtime
