#include "runtime/plan_part.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/copy_lane.h"
#include "runtime/transfer_lane.h"

namespace corro::runtime {
namespace {

constexpr uint64_t kSlotAlignment = 64;
constexpr uint64_t kMostMemory = uint64_t{1} << 46U;  ///< Far below where sums overflow.

uint64_t aligned(uint64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

/// On this lane of the plan, as its collectives allow.
uint32_t most_in_flight(const graph::Plan& plan, graph::LaneId lane) {
  if (plan.lanes[lane].ranks.size() == 1) return graph::kMostDepth;
  uint32_t most = collective::kLines;
  for (const graph::ServiceSpec& service : plan.services) {
    if (service.lane != lane || !service.operation) continue;
    const uint64_t bytes = service.operation->count * size_of(service.operation->dtype);
    most = std::min(most, collective::most_in_flight(bytes));
  }
  return most;
}

}  // namespace

PlanPart::PlanPart(const graph::Plan& plan, const LaneKey& key, const GroupFacts& facts,
                   EngineParts& parts, const LoadOptions& options)
    : whole_(plan),
      key_(key),
      facts_(facts),
      parts_(parts),
      timeout_(options.timeout > Duration::zero() ? options.timeout : parts.options.timeout),
      part_(graph::cut(plan, static_cast<uint32_t>(facts.rank))) {
  part_.plan.epoch = key.epoch;
  for (size_t i = 0; i < part_.lanes.size(); ++i) {
    uint32_t& depth = part_.plan.lanes[i].depth;
    depth = std::min(depth, most_in_flight(whole_, part_.lanes[i]));
  }
  if (options.shows_firings) records_ = std::make_unique<FiringRecords>(part_.plan, parts);
}

Result<PlanPart> PlanPart::make(const graph::Plan& plan, const LaneKey& key,
                                const GroupFacts& facts, EngineParts& parts,
                                const MakeFabric& make_fabric, const LoadOptions& options) {
  CORRO_TRY(graph::check(plan));
  if (plan.ranks != static_cast<uint32_t>(facts.size())) {
    return Status(Code::kInvalidArgument, fmt::format("the plan is of {} ranks, the group of {}",
                                                      plan.ranks, facts.size()));
  }
  if (const uint32_t step = graph::step_of(plan); options.first % step != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the plan cannot begin with micro-batch {}: its services fire once for "
                    "up to {} of them, so give a multiple of that",
                    options.first, step));
  }
  PlanPart part(plan, key, facts, parts, options);
  CORRO_TRY(part.make_lanes(make_fabric, options));
  CORRO_TRY(part.make_executor(options));
  return part;
}

Status PlanPart::make_lanes(const MakeFabric& make_fabric, const LoadOptions& options) {
  lanes_.resize(part_.plan.lanes.size());
  std::vector<graph::ServiceId> numbers(part_.services.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = part_.services[i].number;
  for (graph::LaneId here = 0; here < part_.lanes.size(); ++here) {
    const graph::LaneId lane = part_.lanes[here];
    CORRO_ASSIGN(const bool communicates, serves_all(lane, "collectives", [](const auto& service) {
                   return service.operation.has_value();
                 }));
    CORRO_ASSIGN(const bool copies, serves_all(lane, "copies", [](const auto& service) {
                   return service.copy.has_value();
                 }));
    if (communicates) {
      CORRO_ASSIGN(lanes_[here], make_communicator(here, make_fabric, options));
      continue;
    }
    if (copies) {
      made_.push_back(std::make_unique<CopyLane>(part_.plan, here, parts_.options.poll_soon));
      lanes_[here] = made_.back().get();
      continue;
    }
    if (options.own_lane) lanes_[here] = options.own_lane(lane);
    if (lanes_[here] != nullptr) continue;
    auto pulled = std::make_unique<PulledLane>(numbers, records_.get());
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

/// Whether the lane's services are such; an error if only some of them are.
Result<bool> PlanPart::serves_all(graph::LaneId lane, const char* what,
                                  bool (*is_such)(const graph::ServiceSpec&)) const {
  size_t services = 0;
  size_t such = 0;
  for (const graph::ServiceSpec& service : whole_.services) {
    if (service.lane != lane) continue;
    ++services;
    if (is_such(service)) ++such;
  }
  if (such == 0 || such == services) return such > 0;
  return Status(Code::kInvalidArgument,
                fmt::format("plan: lane \"{}\" has {} and services that are none; give each a lane "
                            "of its own",
                            whole_.lanes[lane].name, what));
}

Result<PlanLane*> PlanPart::make_communicator(graph::LaneId here, const MakeFabric& make_fabric,
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
  auto made = std::make_unique<CommunicatorLane>(key, std::move(facts), parts_, std::move(fabric),
                                                 records_.get());
  for (graph::ServiceId id = 0; id < part_.services.size(); ++id) {
    if (part_.plan.services[id].lane != here) continue;
    CORRO_ASSIGN(auto request, make_request(whole_, part_, id, made->facts()));
    request.timeout = options.timeout;
    if (options.adjust) options.adjust(part_.services[id].number, request);
    made->add(id, std::move(request));
  }
  made_.push_back(std::move(made));
  return made_.back().get();
}

PlanLane* PlanPart::make_transfer(graph::ServiceId half) {
  const graph::PartService& service = part_.services[half];
  const bool sends = service.role == graph::Role::kSend;
  const auto peer = static_cast<int32_t>(service.peer);
  const int32_t from = sends ? facts_.rank : peer;
  const int32_t to = sends ? peer : facts_.rank;
  const LaneKey key = derive_key(key_, fmt::format("channel {} {} {}", service.number, from, to));
  made_.push_back(std::make_unique<TransferLane>(
      key, facts_, parts_, records_.get(),
      TransferLane::Ends{.half = half,
                         .sends = sends,
                         .peer = peer,
                         .bytes = whole_.channels[service.number].slot_bytes,
                         .timeout = timeout_}));
  return made_.back().get();
}

Status PlanPart::check_memory(const ChannelMemory& given) const {
  const auto wrong = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "plan: memory: " + what);
  };
  if (given.channel >= whole_.channels.size()) {
    return wrong(
        fmt::format("there is no channel {} of {}", given.channel, whole_.channels.size()));
  }
  const graph::ChannelSpec& channel = whole_.channels[given.channel];
  if (std::ranges::find(part_.channels, given.channel) == part_.channels.end()) {
    return wrong(fmt::format("channel \"{}\" does not lie on rank {}", channel.name,
                             facts_.own_world_rank()));
  }
  if (given.slots.size() != channel.slots) {
    return wrong(fmt::format("channel \"{}\" has {} slots, and was given {}", channel.name,
                             channel.slots, given.slots.size()));
  }
  for (size_t slot = 0; slot < given.slots.size(); ++slot) {
    const auto& memory = given.slots[slot];
    const uint64_t bytes = memory.data() == nullptr ? 0 : memory.size();
    if (bytes == channel.slot_bytes) continue;
    return wrong(fmt::format("slot {} of channel \"{}\" needs {} bytes, and was given {}", slot,
                             channel.name, channel.slot_bytes, bytes));
  }
  return {};
}

/// By channel of the part; empty where the loader gives none.
Result<std::vector<PlanPart::Slots>> PlanPart::given_slots(
    const std::vector<ChannelMemory>& given) const {
  std::vector<Slots> slots(part_.channels.size());
  for (const ChannelMemory& one : given) {
    CORRO_TRY(check_memory(one));
    const auto here = std::ranges::find(part_.channels, one.channel) - part_.channels.begin();
    Slots& its = slots[static_cast<size_t>(here)];
    if (!its.empty()) {
      return Status(Code::kInvalidArgument, fmt::format("plan: memory: channel \"{}\" comes twice",
                                                        whole_.channels[one.channel].name));
    }
    its = one.slots;
  }
  return slots;
}

/// Memory of the arena for those that have none yet.
Status PlanPart::allocate_others(std::vector<Slots>& slots) {
  uint64_t total = 0;
  for (size_t here = 0; here < slots.size(); ++here) {
    const graph::ChannelSpec& channel = part_.plan.channels[here];
    if (slots[here].empty()) total += channel.slots * aligned(channel.slot_bytes);
  }
  if (total == 0) return {};
  const std::shared_ptr<collective::Segment> segment = parts_.options.segment;
  CORRO_ASSIGN(std::byte * next, segment->allocate(total));
  memory_ = {next, [segment](std::byte* freed) { segment->free(freed); }};
  for (size_t here = 0; here < slots.size(); ++here) {
    const graph::ChannelSpec& channel = part_.plan.channels[here];
    while (slots[here].size() < channel.slots) {
      slots[here].emplace_back(next, channel.slot_bytes);
      next += aligned(channel.slot_bytes);
    }
  }
  return {};
}

Status PlanPart::make_executor(const LoadOptions& options) {
  CORRO_TRY(graph::check(part_.plan, {.max_slot_bytes = kMostMemory}));
  CORRO_ASSIGN(std::vector<Slots> slots, given_slots(options.memory));
  CORRO_TRY(allocate_others(slots));
  const auto allocate = [&](graph::ChannelId here, uint32_t slot) -> Result<std::span<std::byte>> {
    return slots[here][slot];
  };
  const std::vector<graph::Lane*> lanes(lanes_.begin(), lanes_.end());
  CORRO_ASSIGN(executor_,
               graph::Executor::create(part_.plan, lanes,
                                       {.allocate = allocate, .observer = records_.get()}));
  CORRO_TRY(executor_->restart({.epoch = key_.epoch, .micro = options.first}));
  for (PlanLane* lane : lanes_) {
    lane->serve(*executor_);
    if (const auto key = lane->key()) by_key_.emplace(*key, lane);
  }
  return {};
}

std::vector<LaneKey> PlanPart::keys() const {
  std::vector<LaneKey> keys{key_};
  for (const auto& [key, lane] : by_key_) keys.push_back(key);
  return keys;
}

PlanLane* PlanPart::find_lane(const LaneKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

PulledLane* PlanPart::pulled_lane(graph::LaneId lane) const {
  const auto found = std::find(part_.lanes.begin(), part_.lanes.end(), lane);
  if (found == part_.lanes.end()) return nullptr;
  return dynamic_cast<PulledLane*>(lanes_[static_cast<size_t>(found - part_.lanes.begin())]);
}

std::vector<graph::Slot*> PlanPart::slots(graph::ChannelId channel) const {
  const auto found = std::find(part_.channels.begin(), part_.channels.end(), channel);
  if (found == part_.channels.end()) return {};
  graph::Channel& here =
      executor_->channel(static_cast<graph::ChannelId>(found - part_.channels.begin()));
  std::vector<graph::Slot*> slots;
  for (uint32_t i = 0; i < here.slots(); ++i) slots.push_back(&here.slot(i));
  return slots;
}

std::optional<uint32_t> PlanPart::completed_by(graph::ServiceId service) const {
  for (graph::ServiceId here = 0; here < part_.services.size(); ++here) {
    const graph::PartService& one = part_.services[here];
    if (one.role == graph::Role::kService && one.number == service)
      return executor_->completed_by(here);
  }
  return std::nullopt;
}

std::vector<PlanLane::Rest> PlanPart::take_rests() {
  std::vector<PlanLane::Rest> rests;
  for (const auto& lane : made_) {
    if (auto rest = lane->take_rest()) rests.push_back(std::move(*rest));
  }
  return rests;
}

}  // namespace corro::runtime
