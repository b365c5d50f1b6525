#include "graph/executor.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace corro::graph {

Result<std::unique_ptr<Executor>> Executor::create(Plan plan, const std::vector<Lane*>& lanes,
                                                   const ExecutorOptions& options) {
  if (plan.ranks != 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("executor: the plan is of {} ranks; it runs what cut() or expand() "
                              "make of it",
                              plan.ranks));
  }
  CORRO_TRY(check(plan, options.limits));
  std::unique_ptr<Executor> executor(new Executor(std::move(plan), options.observer));
  CORRO_TRY(executor->build(lanes, options));
  return executor;
}

Status Executor::build(const std::vector<Lane*>& lanes, const ExecutorOptions& options) {
  if (lanes.size() != plan_.lanes.size()) {
    return {Code::kInvalidArgument, fmt::format("executor: {} lanes were given, the plan has {}",
                                                lanes.size(), plan_.lanes.size())};
  }
  for (size_t i = 0; i < lanes.size(); ++i) (void)add_lane(plan_.lanes[i], *lanes[i]);
  CORRO_TRY(build_channels(options));
  build_services();
  step_ = step_of(plan_);
  CORRO_TRY(restart({.epoch = plan_.epoch, .micro = 0}));
  return {};
}

Status Executor::build_channels(const ExecutorOptions& options) {
  producers_.resize(plan_.channels.size());
  consumers_.resize(plan_.channels.size());
  for (ServiceId id = 0; id < plan_.services.size(); ++id) {
    for (const ChannelId channel : plan_.services[id].outputs) producers_[channel] = id;
    for (const ChannelId channel : plan_.services[id].inputs) consumers_[channel].push_back(id);
  }
  channels_.reserve(plan_.channels.size());
  for (ChannelId id = 0; id < plan_.channels.size(); ++id) {
    const ChannelSpec& spec = plan_.channels[id];
    std::vector<Pace> paces;
    for (const ServiceId consumer : consumers_[id])
      paces.push_back(pace_of(plan_, producers_[id], consumer));
    Channel& channel = channels_.emplace_back(spec.slots, paces, spec.initial,
                                              plan_.services[producers_[id]].every);
    if (!options.allocate || spec.slot_bytes == 0) continue;
    for (uint32_t slot = 0; slot < spec.slots; ++slot) {
      CORRO_ASSIGN(channel.slot(slot).data, options.allocate(id, slot));
    }
  }
  return {};
}

void Executor::build_services() {
  services_.resize(plan_.services.size());
  for (ServiceId id = 0; id < plan_.services.size(); ++id) {
    const ServiceSpec& spec = plan_.services[id];
    Task& task = tasks_.emplace_back();
    task.lane = spec.lane;
    task.priority = spec.priority;
    task.name = spec.name;
    task.launch = spec.launch;
    Service& service = services_[id];
    service.every = spec.every;
    service.outputs = spec.outputs;
    service.output_slots.resize(spec.outputs.size());
    for (const ChannelId channel : spec.inputs) {
      const auto& readers = consumers_[channel];
      const auto number = std::find(readers.begin(), readers.end(), id) - readers.begin();
      service.inputs.push_back({channel, static_cast<uint32_t>(number)});
      const uint32_t takes = channels_[channel].takes(service.inputs.back().consumer);
      service.input_slots.resize(service.input_slots.size() + takes);
    }
    LaneState& lane = lanes_[spec.lane];
    lane.services.push_back(id);
    lane.most_lag = std::max(lane.most_lag, spec.lag);
  }
  for (LaneState& lane : lanes_) {
    if (lane.spec.order != LaneOrder::kPriority) continue;
    std::stable_sort(lane.services.begin(), lane.services.end(), [this](ServiceId a, ServiceId b) {
      return tasks_[a].priority < tasks_[b].priority;
    });
  }
}

LaneId Executor::add_lane(LaneSpec spec, Lane& lane) {
  CORRO_CHECK(spec.depth > 0, spec.name);
  LaneId id = 0;
  while (id < lanes_.size() && lanes_[id].lane != nullptr) ++id;
  if (id == lanes_.size()) {
    lanes_.emplace_back();
    std::rotate(dirty_.begin(), dirty_.begin() + static_cast<std::ptrdiff_t>(dirty_first_),
                dirty_.end());
    dirty_first_ = 0;
    dirty_.push_back(0);
  }
  lanes_[id].spec = std::move(spec);
  lanes_[id].lane = &lane;
  return id;
}

Status Executor::remove_lane(LaneId lane) {
  LaneState& state = lanes_[lane];
  if (!state.services.empty() || state.one_shots != 0) {
    return {Code::kFailedPrecondition,
            fmt::format("executor: lane {} still serves {} services and {} one-shots",
                        state.spec.name, state.services.size(), state.one_shots)};
  }
  state.lane = nullptr;
  return {};
}

void Executor::run_until(uint32_t micro) {
  if (micro > end_) {
    end_ = micro;
    end_service_ = 0;
    add_stretch();
  }
  count_unfinished();
  mark_all_dirty();
}

void Executor::count_unfinished() {
  unfinished_ = 0;
  for (ServiceId id = 0; id < services_.size(); ++id) {
    if (services_[id].done < end_of(id)) ++unfinished_;
  }
}

void Executor::add_stretch() {
  std::erase_if(stretches_, [least = completed()](uint32_t end) { return end <= least; });
  stretches_.push_back(end_);
  for (LaneState& lane : lanes_) {
    if (lane.most_lag > 0) find_turn(lane);
  }
}

void Executor::find_turn(LaneState& lane) const {
  while (lane.round < lane.end + lane.most_lag || begin_stretch(lane)) {
    const ServiceId id = lane.services[lane.turn];
    const uint64_t generation = services_[id].started;
    if (generation < lane.end && generation + plan_.services[id].lag == lane.round) return;
    end_turn(lane);
  }
}

bool Executor::begin_stretch(LaneState& lane) const {
  const auto next = std::upper_bound(stretches_.begin(), stretches_.end(), lane.end);
  if (next == stretches_.end()) return false;
  lane.round = std::exchange(lane.end, *next);
  return true;
}

void Executor::end_turn(LaneState& lane) {
  lane.turn = (lane.turn + 1) % lane.services.size();
  if (lane.turn == 0) ++lane.round;
}

bool Executor::poll(Time now) {
  CORRO_CHECK(starting_ == kNone, "poll() from inside a launch");
  bool started = false;
  while (dirty_count_ > 0) {
    const LaneId id = dirty_[dirty_first_];
    dirty_first_ = (dirty_first_ + 1) % dirty_.size();
    --dirty_count_;
    lanes_[id].dirty = false;
    started |= fire_lane(id, now);
  }
  return started;
}

bool Executor::fire_lane(LaneId id, Time now) {
  bool started = false;
  while (lanes_[id].in_flight < lanes_[id].spec.depth) {
    const uint32_t task = pick(lanes_[id]);
    if (task == kNone) break;
    if (lanes_[id].in_flight + tasks_[task].weight > lanes_[id].spec.depth) break;
    started = true;
    if (task < services_.size()) {
      start_service(task, now);
    } else {
      start_one_shot(task, now);
    }
  }
  return started;
}

uint32_t Executor::pick(const LaneState& lane) const {
  if (lane.spec.order == LaneOrder::kAgreed) {
    if (lane.services.empty()) return lane.first_waiting;
    const ServiceId next = lane.services[lane.turn];
    return ready(next) ? next : kNone;
  }
  const auto found = std::find_if(lane.services.begin(), lane.services.end(),
                                  [this](ServiceId id) { return ready(id); });
  if (found == lane.services.end()) return lane.first_waiting;
  const bool one_shot_first =
      lane.first_waiting != kNone && tasks_[lane.first_waiting].priority < tasks_[*found].priority;
  return one_shot_first ? lane.first_waiting : *found;
}

bool Executor::ready(ServiceId id) const {
  const Service& service = services_[id];
  if (tasks_[id].state != TaskState::kIdle || service.started >= end_of(id)) return false;
  if (frozen_ || !status_.ok()) return false;
  return std::all_of(service.inputs.begin(), service.inputs.end(),
                     [this](const InputEnd& input) {
                       return channels_[input.channel].can_read(input.consumer);
                     }) &&
         std::all_of(service.outputs.begin(), service.outputs.end(),
                     [this](ChannelId output) { return channels_[output].can_write(); });
}

void Executor::start_service(ServiceId id, Time now) {
  Service& service = services_[id];
  const Generation generation = next_generation(id);
  Slot** next = service.input_slots.data();
  for (const InputEnd& input : service.inputs) {
    Channel& channel = channels_[input.channel];
    const uint32_t takes = channel.takes(input.consumer);
    for (uint32_t i = 0; i < takes; ++i) *next++ = &channel.front(input.consumer, i);
    // The last one is of the generation, or of the several that the generation is one of.
    const uint32_t every = services_[producers_[input.channel]].every;
    const Generation slot = next[-1]->generation;
    CORRO_CHECK(slot.epoch == generation.epoch && slot.micro / every == generation.micro / every,
                plan_.services[id].name, generation.micro, slot.micro);
  }
  for (size_t i = 0; i < service.outputs.size(); ++i) {
    const ChannelId output = service.outputs[i];
    // A channel's token is named after the firing that reads it, which comes `initial` later.
    Channel& channel = channels_[output];
    service.output_slots[i] = &channel.begin_write(channel.read_in(generation));
  }
  ++service.started;
  ++services_in_flight_;
  LaneState& lane = lanes_[tasks_[id].lane];
  end_turn(lane);
  if (lane.most_lag > 0) find_turn(lane);
  if (observer_ != nullptr) observer_->on_start(id, generation);
  begin(id, plan_.services[id].duration,
        {.ticket = {},
         .generation = generation,
         .inputs = service.input_slots,
         .outputs = service.output_slots},
        now);
}

void Executor::start_one_shot(uint32_t task, Time now) {
  LaneState& lane = lanes_[tasks_[task].lane];
  lane.first_waiting = tasks_[task].next;
  if (lane.first_waiting == kNone) lane.last_waiting = kNone;
  --waiting_;
  begin(task, Duration::zero(), {}, now);
}

void Executor::begin(uint32_t task, Duration duration, const Firing& firing, Time now) {
  Task& entry = tasks_[task];
  entry.state = TaskState::kRunning;
  ++in_flight_;
  LaneState& lane = lanes_[entry.lane];
  lane.in_flight += entry.weight;
  if (task < services_.size()) ++entry.sequence;
  Work work{.name = entry.name, .duration = duration, .launch = entry.launch, .firing = firing};
  work.firing.ticket = {.task = task, .sequence = entry.sequence};
  starting_ = task;
  lane.lane->start(now, work);
  starting_ = kNone;
  if (std::exchange(entry.recycle_after_start, false)) recycle(task);
}

void Executor::complete(Ticket ticket, const Status& status) {
  if ((ticket.task & kOfLane) != 0) return finish_begun(ticket);
  if (ticket.task >= tasks_.size()) return;
  Task& task = tasks_[ticket.task];
  if (task.state != TaskState::kRunning || task.sequence != ticket.sequence) return;
  task.state = TaskState::kIdle;
  --in_flight_;
  lanes_[task.lane].in_flight -= task.weight;
  mark_dirty(task.lane);
  if (ticket.task < services_.size()) {
    finish_service(ticket.task, status);
  } else {
    finish_one_shot(ticket.task, status);
  }
}

void Executor::finish_service(ServiceId id, const Status& status) {
  Service& service = services_[id];
  --services_in_flight_;
  if (observer_ != nullptr) observer_->on_end(id, status);
  if (!status.ok()) {
    const auto& name = plan_.services[id].name;
    stop(status.with_context(fmt::format("service {}, epoch {}, micro-batch {}", name, epoch_,
                                         service.micro(service.done))));
    return;
  }
  for (const ChannelId output : service.outputs) {
    channels_[output].end_write();
    for (const ServiceId consumer : consumers_[output]) mark_dirty(tasks_[consumer].lane);
  }
  for (const InputEnd& input : service.inputs) {
    channels_[input.channel].release(input.consumer);
    mark_dirty(tasks_[producers_[input.channel]].lane);
  }
  if (++service.done == end_of(id)) --unfinished_;
}

void Executor::finish_one_shot(uint32_t task, const Status& status) {
  const auto on_done = std::move(tasks_[task].on_done);
  --lanes_[tasks_[task].lane].one_shots;
  if (task == starting_) {
    tasks_[task].recycle_after_start = true;  // Its launch is still on the stack.
  } else {
    recycle(task);
  }
  if (on_done) on_done(status);
}

Result<Ticket> Executor::submit(LaneId lane, OneShot one_shot) {
  CORRO_CHECK(lane < lanes_.size() && lanes_[lane].lane != nullptr, lane);
  LaneState& state = lanes_[lane];
  if (state.spec.order == LaneOrder::kAgreed && !state.services.empty()) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("executor: {}: lane {} starts the plan's services in agreed order; "
                              "submit to a lane of its own",
                              one_shot.name, state.spec.name));
  }
  const uint32_t id = take_free_task();
  Task& task = tasks_[id];
  task.state = TaskState::kQueued;
  task.lane = lane;
  task.priority = state.spec.order == LaneOrder::kPriority ? one_shot.priority : 0;
  task.weight = std::min(one_shot.weight, state.spec.depth);
  ++task.sequence;
  task.name = one_shot.name;
  task.launch = std::move(one_shot.launch);
  task.on_done = std::move(one_shot.on_done);
  enqueue(state, id);
  ++state.one_shots;
  ++waiting_;
  mark_dirty(lane);
  return Ticket{.task = id, .sequence = task.sequence};
}

std::optional<Ticket> Executor::try_begin(LaneId lane) {
  LaneState& state = lanes_[lane];
  if (state.one_shots > 0 || state.in_flight > 0) return std::nullopt;
  CORRO_CHECK(state.services.empty() || state.spec.order != LaneOrder::kAgreed, state.spec.name);
  state.has_begun = true;
  state.one_shots = state.in_flight = 1;
  ++in_flight_;
  return Ticket{.task = kOfLane | lane, .sequence = ++state.begun};
}

void Executor::finish_begun(Ticket ticket) {
  const LaneId id = ticket.task & ~kOfLane;
  if (id >= lanes_.size()) return;
  LaneState& lane = lanes_[id];
  if (!lane.has_begun || lane.begun != ticket.sequence) return;
  lane.has_begun = false;
  --lane.one_shots;
  --lane.in_flight;
  --in_flight_;
  if (lane.first_waiting != kNone || !lane.services.empty()) mark_dirty(id);
}

void Executor::enqueue(LaneState& lane, uint32_t task) {
  const int32_t priority = tasks_[task].priority;
  uint32_t before = lane.last_waiting;
  if (before != kNone && tasks_[before].priority > priority) {
    before = kNone;
    uint32_t after = lane.first_waiting;
    while (tasks_[after].priority <= priority) before = std::exchange(after, tasks_[after].next);
  }
  uint32_t& link = before == kNone ? lane.first_waiting : tasks_[before].next;
  tasks_[task].next = std::exchange(link, task);
  if (tasks_[task].next == kNone) lane.last_waiting = task;
}

size_t Executor::cancel_pending(LaneId lane, const Status& status) {
  // Only those that wait now: on_done may submit new ones.
  uint32_t task = std::exchange(lanes_[lane].first_waiting, kNone);
  lanes_[lane].last_waiting = kNone;
  size_t count = 0;
  while (task != kNone) {
    const uint32_t next = tasks_[task].next;
    --waiting_;
    finish_one_shot(task, status);
    task = next;
    ++count;
  }
  return count;
}

void Executor::stop(const Status& reason) {
  CORRO_CHECK(!reason.ok(), "a plan stops for a reason");
  if (status_.ok()) status_ = reason;
}

Status Executor::restart(Generation first) {
  if (services_in_flight_ > 0) {
    for (ServiceId id = 0; id < services_.size(); ++id) {
      if (tasks_[id].state != TaskState::kRunning) continue;
      return {Code::kFailedPrecondition,
              fmt::format("executor: cannot restart, service {} and {} more are in flight",
                          plan_.services[id].name, services_in_flight_ - 1)};
    }
  }
  if (first.micro % step_ != 0) {
    return {Code::kInvalidArgument,
            fmt::format("executor: cannot start with micro-batch {}: a step of the plan has {}",
                        first.micro, step_)};
  }
  epoch_ = first.epoch;
  end_ = first.micro;
  end_service_ = 0;
  frozen_ = false;
  unfinished_ = 0;
  status_ = Status();
  for (Channel& channel : channels_) channel.reset(first);
  for (Service& service : services_) service.started = service.done = first.micro / service.every;
  stretches_.clear();
  for (LaneState& lane : lanes_) {
    lane.turn = 0;
    lane.end = first.micro;
    lane.round = lane.end + lane.most_lag;
  }
  return {};
}

Place Executor::freeze() {
  frozen_ = true;
  const LaneState& lane = agreed_lane();
  const ServiceId next = lane.services[lane.turn];
  return {.generation = next_generation(next), .service = next};
}

Status Executor::leave(Place cut) {
  CORRO_CHECK(frozen_, "a plan is frozen before it is left");
  for (const ServiceId id : agreed_lane().services) {
    const uint32_t end = cut.generation.micro + (id < cut.service ? 1 : 0);
    if (services_[id].started <= end) continue;
    return {Code::kFailedPrecondition,
            fmt::format("executor: cannot leave the plan there: service {} has started "
                        "micro-batch {}",
                        plan_.services[id].name, services_[id].started - 1)};
  }
  frozen_ = false;
  end_ = cut.generation.micro;
  end_service_ = cut.service;
  count_unfinished();
  mark_all_dirty();
  return {};
}

const Executor::LaneState& Executor::agreed_lane() const {
  const auto agreed = [](const LaneState& lane) {
    return lane.spec.order == LaneOrder::kAgreed && !lane.services.empty() && lane.most_lag == 0;
  };
  CORRO_CHECK(step_ == 1 && std::count_if(lanes_.begin(), lanes_.end(), agreed) == 1,
              "one agreed order");
  return *std::find_if(lanes_.begin(), lanes_.end(), agreed);
}

Generation Executor::next_generation(ServiceId service) const {
  return {.epoch = epoch_, .micro = services_[service].micro(services_[service].started)};
}

uint32_t Executor::completed() const {
  uint32_t least = end_;
  for (const Service& service : services_) least = std::min(least, service.done * service.every);
  return least / step_ * step_;
}

uint32_t Executor::take_free_task() {
  if (free_task_ == kNone) {
    tasks_.emplace_back();
    return static_cast<uint32_t>(tasks_.size() - 1);
  }
  return std::exchange(free_task_, tasks_[free_task_].next);
}

void Executor::recycle(uint32_t task) {
  Task& entry = tasks_[task];
  entry.state = TaskState::kIdle;
  entry.launch = nullptr;
  entry.next = std::exchange(free_task_, task);
}

void Executor::mark_dirty(LaneId id) {
  if (std::exchange(lanes_[id].dirty, true)) return;
  dirty_[(dirty_first_ + dirty_count_) % dirty_.size()] = id;
  ++dirty_count_;
}

void Executor::mark_all_dirty() {
  for (LaneId id = 0; id < lanes_.size(); ++id) mark_dirty(id);
}

std::string Executor::describe_waiting() const {
  std::string text;
  for (ServiceId id = 0; id < services_.size(); ++id) {
    if (services_[id].done >= end_of(id)) continue;
    text += fmt::format("service {}, micro-batch {}: {}\n", plan_.services[id].name,
                        services_[id].micro(services_[id].done), waits_for(id));
  }
  for (const LaneState& lane : lanes_) {
    if (lane.one_shots == 0) continue;
    text += fmt::format("lane {}: {} one-shots, {} in flight\n", lane.spec.name, lane.one_shots,
                        lane.in_flight);
  }
  return text;
}

std::string Executor::waits_for(ServiceId id) const {
  if (tasks_[id].state == TaskState::kRunning) return "in flight";
  for (const InputEnd& input : services_[id].inputs) {
    if (channels_[input.channel].can_read(input.consumer)) continue;
    return fmt::format("waits for {} from {}", plan_.channels[input.channel].name,
                       plan_.services[producers_[input.channel]].name);
  }
  for (const ChannelId output : services_[id].outputs) {
    if (channels_[output].can_write()) continue;
    return fmt::format("waits for a free slot of {}", plan_.channels[output].name);
  }
  return fmt::format("waits for its lane {}", plan_.lanes[tasks_[id].lane].name);
}

}  // namespace corro::graph
