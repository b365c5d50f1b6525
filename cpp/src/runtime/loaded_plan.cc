#include "runtime/loaded_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/transfer_lane.h"

namespace corro::runtime {
namespace {

constexpr uint64_t kSlotAlignment = 64;
constexpr uint64_t kMostMemory = uint64_t{1} << 46U;  ///< Far below where sums overflow.

/// A rank that stops a plan tells all others at once.
constexpr Duration kTimeToSayWhy = std::chrono::seconds(1);

uint64_t aligned(uint64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

/// Something shows that a plan has ended elsewhere: true as long as STOP may still say why.
bool may_hear_why(Time& until, Time now) {
  if (until == Time::never()) until = now + kTimeToSayWhy;
  return now < until;
}

}  // namespace

LoadedPlan::LoadedPlan(graph::Plan plan, const LaneKey& key, const GroupFacts& facts,
                       EngineParts& parts)
    : whole_(std::move(plan)), key_(key), facts_(facts), parts_(parts) {}

Result<std::unique_ptr<LoadedPlan>> LoadedPlan::load(const graph::Plan& plan, const LaneKey& key,
                                                     const GroupFacts& facts, EngineParts& parts,
                                                     const MakeFabric& make_fabric,
                                                     const LoadOptions& options) {
  CORRO_TRY(graph::check(plan));
  if (plan.ranks != static_cast<uint32_t>(facts.size())) {
    return Status(Code::kInvalidArgument, fmt::format("the plan is of {} ranks, the group of {}",
                                                      plan.ranks, facts.size()));
  }
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan(plan, key, facts, parts));
  CORRO_TRY(loaded->build(make_fabric, options));
  return loaded;
}

Status LoadedPlan::build(const MakeFabric& make_fabric, const LoadOptions& options) {
  part_ = graph::cut(whole_, static_cast<uint32_t>(facts_.rank));
  part_.plan.epoch = key_.epoch;
  timeout_ = options.timeout > Duration::zero() ? options.timeout : parts_.options.timeout;
  // A communicator has a board line for each operation in flight.
  for (size_t i = 0; i < part_.lanes.size(); ++i) {
    graph::LaneSpec& lane = part_.plan.lanes[i];
    if (whole_.lanes[part_.lanes[i]].ranks.size() > 1)
      lane.depth = std::min(lane.depth, collective::kLines);
  }
  CORRO_TRY(make_lanes(make_fabric, options));
  CORRO_TRY(graph::check(part_.plan, {.max_slot_bytes = kMostMemory}));
  uint64_t total = 0;
  if (!options.memory) {
    for (const graph::ChannelSpec& channel : part_.plan.channels)
      total += channel.slots * aligned(channel.slot_bytes);
  }
  if (total > 0) {
    const std::shared_ptr<collective::Segment> segment = parts_.options.segment;
    CORRO_ASSIGN(std::byte* const memory, segment->allocate(total));
    memory_ = {memory, [segment](std::byte* freed) { segment->free(freed); }};
  }
  std::byte* next = memory_.get();
  const auto allocate = [&](graph::ChannelId here, uint32_t slot) -> Result<std::span<std::byte>> {
    if (options.memory) return options.memory(part_.channels[here], slot);
    const uint64_t bytes = part_.plan.channels[here].slot_bytes;
    return std::span(std::exchange(next, next + aligned(bytes)), bytes);
  };
  const std::vector<graph::Lane*> lanes(lanes_.begin(), lanes_.end());
  CORRO_ASSIGN(executor_, graph::Executor::create(part_.plan, lanes, {.allocate = allocate}));
  CORRO_TRY(executor_->restart({.epoch = key_.epoch, .micro = options.first}));
  for (PlanLane* lane : lanes_) {
    lane->serve(*executor_);
    if (const auto key = lane->key()) by_key_.emplace(*key, lane);
  }
  return {};
}

// -- lanes ----------------------------------------------------------------------------------------

Status LoadedPlan::make_lanes(const MakeFabric& make_fabric, const LoadOptions& options) {
  lanes_.resize(part_.plan.lanes.size());
  std::vector<graph::ServiceId> numbers(part_.services.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = part_.services[i].number;
  for (graph::LaneId here = 0; here < part_.lanes.size(); ++here) {
    const graph::LaneId lane = part_.lanes[here];
    size_t services = 0;
    size_t operations = 0;
    for (const graph::ServiceSpec& service : whole_.services) {
      if (service.lane != lane) continue;
      ++services;
      if (service.operation) ++operations;
    }
    if (operations > 0 && operations < services) {
      return {Code::kInvalidArgument,
              fmt::format("plan: lane \"{}\" has collectives and services that are none; give each "
                          "a lane of its own",
                          whole_.lanes[lane].name)};
    }
    if (operations > 0) {
      CORRO_ASSIGN(lanes_[here], make_communicator(here, make_fabric, options));
      continue;
    }
    if (options.own_lane) lanes_[here] = options.own_lane(lane);
    if (lanes_[here] != nullptr) continue;
    auto pulled = std::make_unique<PulledLane>(numbers);
    pulled_.push_back(pulled.get());
    lanes_[here] = pulled.get();
    made_.push_back(std::move(pulled));
  }
  for (graph::ServiceId id = 0; id < part_.services.size(); ++id) {
    if (part_.services[id].role == graph::Role::kService) continue;
    lanes_[part_.plan.services[id].lane] = make_transfer(id);
  }
  return {};
}

Result<PlanLane*> LoadedPlan::make_communicator(graph::LaneId here, const MakeFabric& make_fabric,
                                                const LoadOptions& options) {
  const graph::LaneId lane = part_.lanes[here];
  GroupFacts facts{.key = derive_key(key_, fmt::format("lane {}", lane)),
                   .name = whole_.lanes[lane].name,
                   .members = {},
                   .world_ranks = {}};
  for (const uint32_t rank : whole_.lanes[lane].ranks) {
    facts.members.push_back(facts_.member(static_cast<int32_t>(rank)));
    facts.world_ranks.push_back(facts_.world_rank(static_cast<int32_t>(rank)));
  }
  facts.rank = facts.index_of(facts_.member(facts_.rank));
  const LaneKey key = facts.key;
  CORRO_ASSIGN(auto fabric, make_fabric(facts, key));
  auto made = std::make_unique<CommunicatorLane>(key, std::move(facts), parts_, std::move(fabric));
  for (graph::ServiceId id = 0; id < part_.services.size(); ++id) {
    if (part_.plan.services[id].lane != here) continue;
    CORRO_ASSIGN(auto step, make_step(whole_, part_, id, made->facts()));
    step.request.timeout = options.timeout;
    if (options.adjust) options.adjust(part_.services[id].number, step.request);
    made->add(id, std::move(step));
  }
  made_.push_back(std::move(made));
  return made_.back().get();
}

PlanLane* LoadedPlan::make_transfer(graph::ServiceId half) {
  const graph::PartService& service = part_.services[half];
  const bool sends = service.role == graph::Role::kSend;
  const auto peer = static_cast<int32_t>(service.peer);
  const int32_t from = sends ? facts_.rank : peer;
  const int32_t to = sends ? peer : facts_.rank;
  const LaneKey key = derive_key(key_, fmt::format("channel {} {} {}", service.number, from, to));
  made_.push_back(std::make_unique<TransferLane>(
      key, facts_, parts_,
      TransferLane::Ends{.name = part_.plan.services[half].name,
                         .sends = sends,
                         .peer = peer,
                         .bytes = whole_.channels[service.number].slot_bytes,
                         .timeout = timeout_}));
  return made_.back().get();
}

std::vector<LaneKey> LoadedPlan::keys() const {
  std::vector<LaneKey> keys{key_};
  for (const auto& [key, lane] : by_key_) keys.push_back(key);
  return keys;
}

PulledLane* LoadedPlan::pulled_lane(graph::LaneId lane) const {
  const auto found = std::find(part_.lanes.begin(), part_.lanes.end(), lane);
  if (found == part_.lanes.end()) return nullptr;
  return dynamic_cast<PulledLane*>(lanes_[static_cast<size_t>(found - part_.lanes.begin())]);
}

std::vector<graph::Slot*> LoadedPlan::slots(graph::ChannelId channel) {
  const auto found = std::find(part_.channels.begin(), part_.channels.end(), channel);
  if (found == part_.channels.end()) return {};
  graph::Channel& here =
      executor_->channel(static_cast<graph::ChannelId>(found - part_.channels.begin()));
  std::vector<graph::Slot*> slots;
  for (uint32_t i = 0; i < here.slots(); ++i) slots.push_back(&here.slot(i));
  return slots;
}

std::optional<uint32_t> LoadedPlan::completed_by(graph::ServiceId service) const {
  for (graph::ServiceId here = 0; here < part_.services.size(); ++here) {
    const graph::PartService& one = part_.services[here];
    if (one.role == graph::Role::kService && one.number == service)
      return executor_->completed_by(here);
  }
  return std::nullopt;
}

// -- progress -------------------------------------------------------------------------------------

std::shared_ptr<WorkState> LoadedPlan::run_until(uint32_t micro) {
  auto work = std::make_shared<WorkState>(std::vector<collective::OpRequest>(1));
  if (!stopped_.ok()) {
    work->finish_one(stopped_);
    return work;
  }
  executor_->run_until(micro);
  fresh_ = true;
  waiters_.push_back({micro, work});
  std::ranges::stable_sort(waiters_, {}, &Waiter::until);
  return work;
}

bool LoadedPlan::has_news() const {
  return fresh_ || std::any_of(lanes_.begin(), lanes_.end(),
                               [](const PlanLane* lane) { return lane->has_news(); });
}

bool LoadedPlan::poll(Time now) {
  bool moved = std::exchange(fresh_, false);
  for (PlanLane* lane : lanes_) moved = lane->poll(now) || moved;
  moved = executor_->poll(now) || moved;
  if (!moved) return false;
  moved_ = now;
  settle(now);
  return true;
}

/// Ends the plan if a firing has failed, and the waits that are over.
void LoadedPlan::settle(Time now) {
  if (!stopped_.ok()) return;
  if (const Status& status = executor_->status(); !status.ok())
    return end(status, status.detail() ? status.detail()->rank : -1, true, now);
  const auto is_over = [this](const Waiter& first) {
    if (executor_->reached()) return true;
    return first.until < waiters_.back().until && completed() >= first.until;
  };
  while (!waiters_.empty() && is_over(waiters_.front())) {
    waiters_.front().work->finish_one({});
    waiters_.erase(waiters_.begin());
  }
}

void LoadedPlan::check(Time now) {
  if (!stopped_.ok()) return;
  for (PlanLane* lane : lanes_) {
    const auto failure = lane->check(now);
    if (failure) heard_.emplace(lane, *failure);
    if (failure && !failure->heard) break;
  }
  if (!heard_ || (heard_->second.heard && may_hear_why(why_until_, now))) return;
  const auto [lane, failure] = *heard_;
  lane->stop(failure.cause, now);  // first: its services are what it happened in
  end(failure.cause, failure.culprit, true, now);
}

void LoadedPlan::check_served(Time now) {
  const auto computes = [](const PulledLane* lane) { return lane->computing() > 0; };
  const bool served = std::ranges::any_of(pulled_, computes);
  (void)poll(now);  // What threads have done in the meantime counts.
  if (served) moved_ = now;
  if (!stopped_.ok() || now - moved_ < timeout_) return;
  for (PulledLane* lane : pulled_) {
    const auto firing = lane->oldest();
    if (!firing) continue;
    const graph::ServiceSpec& service = whole_.services[firing->service];
    const int32_t rank = facts_.own_world_rank();
    return stop(
        {Code::kDeadlineExceeded,
         fmt::format("service {}, micro-batch {}: waited for a thread of rank {} that "
                     "serves lane {} for {:.3g} s",
                     service.name, firing->generation.micro, rank, whole_.lanes[service.lane].name,
                     std::chrono::duration<double>(now - moved_).count()),
         {.rank = rank}},
        now);
  }
}

Time LoadedPlan::next_deadline() const {
  Time earliest = stopped_.ok() ? why_until_ : Time::never();
  for (const PlanLane* lane : lanes_) earliest = std::min(earliest, lane->next_deadline());
  return earliest;
}

MemberId LoadedPlan::awaited_that_left(Time now) {
  for (const PlanLane* lane : lanes_) {
    const MemberId left = lane->awaited_that_left();
    if (left >= 0) return may_hear_why(why_until_, now) ? -1 : left;
  }
  return -1;
}

void LoadedPlan::hear(MemberId from, const wire::Control& control, Time now) {
  if (control.kind == wire::ControlKind::kStop && control.lane == key_) {
    const int32_t r = facts_.index_of(from);
    const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
    const auto& ranks = facts_.world_ranks;
    const bool known = std::find(ranks.begin(), ranks.end(), control.rank) != ranks.end();
    const int32_t culprit = known ? control.rank : facts_.world_rank(r);
    return end({code,
                fmt::format("rank {} stopped the plan: {}", facts_.world_rank(r), control.text),
                {.rank = culprit}},
               culprit, false, now);
  }
  const auto found = by_key_.find(control.lane);
  if (found == by_key_.end()) return;
  found->second->hear(from, control);
  settle(now);
}

void LoadedPlan::judge(MemberId from, const transport::MessageKey& key,
                       const SignatureBits& signature) {
  const auto found = by_key_.find(key.lane);
  if (found != by_key_.end()) found->second->judge(from, key.op, signature);
}

// -- the end --------------------------------------------------------------------------------------

void LoadedPlan::stop(const Status& cause, Time now) {
  end(cause, cause.detail() ? cause.detail()->rank : facts_.own_world_rank(), true, now);
}

void LoadedPlan::fail(const Status& cause, Time now) {
  end(cause, cause.detail() ? cause.detail()->rank : -1, false, now);
}

void LoadedPlan::end(const Status& cause, int32_t culprit, bool tell, Time now) {
  if (!stopped_.ok()) return;
  // What is in flight among ranks fails first, so the reason says what it was.
  for (PlanLane* lane : lanes_) {
    if (lane->key()) lane->stop(cause, now);
  }
  const std::string waits = executor_->describe_waiting();
  executor_->stop(waits.empty() ? cause : cause.with_context(waits.substr(0, waits.find('\n'))));
  stopped_ = executor_->status();
  for (PlanLane* lane : lanes_) {
    if (!lane->key()) lane->stop(stopped_, now);
  }
  has_stopped_.store(true, std::memory_order_release);
  if (tell) {
    tell_members(parts_, facts_,
                 {.kind = wire::ControlKind::kStop,
                  .code = static_cast<uint8_t>(stopped_.code()),
                  .lane = key_,
                  .rank = culprit,
                  .op = completed(),
                  .text = stopped_.message()});
  }
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.work->finish_one(stopped_);
}

std::vector<PlanLane::Rest> LoadedPlan::take_rests() {
  std::vector<PlanLane::Rest> rests;
  for (const auto& lane : made_) {
    if (auto rest = lane->take_rest()) rests.push_back(std::move(*rest));
  }
  return rests;
}

}  // namespace corro::runtime
