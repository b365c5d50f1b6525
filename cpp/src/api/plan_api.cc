// The part of corro.h that is about plans.
#include <corro/corro.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/arena_blocks.h"
#include "api/handles.h"

using corro::Code;
using corro::Duration;
using corro::Status;
using corro::api::check_alive;
using corro::api::check_group;
using corro::api::guarded;
using corro::api::read_struct;
namespace graph = corro::graph;
namespace runtime = corro::runtime;

struct corro_lane {
  /// One firing's slots as the caller sees them; a service never overlaps itself.
  struct Slots {
    std::vector<corro_slot> inputs;
    std::vector<corro_slot> outputs;
    std::span<graph::Slot* const> filled;  ///< The outputs themselves.
  };
  corro_plan* plan;
  runtime::PulledLane* lane;
  std::vector<Slots> slots;  ///< By service of the whole plan.
};

struct corro_plan {
  corro_group* group;
  runtime::LoadedPlan* plan;
  std::vector<std::unique_ptr<corro_lane>> lanes;  ///< By lane of the plan; null: not pulled here.
  uint64_t digest = 0;  ///< Of its key, and of the micro-batch that comes first.

  [[nodiscard]] runtime::Driver& driver() const { return group->engine->driver(); }
};

namespace {

Status check_plan(const corro_plan* plan) {
  if (plan == nullptr) return {Code::kInvalidArgument, "no plan given"};
  return check_group(plan->group);
}

template <typename T>
std::vector<T> list_of(const T* items, size_t count) {
  return count == 0 ? std::vector<T>() : std::vector<T>(items, items + count);
}

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

Status read_service(const corro_plan_service& given, size_t index, graph::Plan& plan) {
  graph::ServiceSpec service{.name = text_of(given.name),
                             .lane = given.lane,
                             .priority = given.priority,
                             .lag = given.lag,
                             .every = std::max(given.every, 1U),
                             .duration = Duration(given.duration_ns),
                             .inputs = list_of(given.inputs, given.input_count),
                             .outputs = list_of(given.outputs, given.output_count)};
  if (given.has_operation != 0) {
    if (given.kind >= corro::kOpKindCount || given.dtype >= corro::kDTypeCount ||
        given.reduce_op >= corro::kReduceOpCount) {
      return {Code::kInvalidArgument,
              fmt::format("services[{}].operation: unknown kind {}, dtype {} or reduce_op {}",
                          index, given.kind, given.dtype, given.reduce_op)};
    }
    service.operation = {.kind = static_cast<corro::OpKind>(given.kind),
                         .dtype = static_cast<corro::DType>(given.dtype),
                         .count = given.count,
                         .reduce_op = static_cast<corro::ReduceOp>(given.reduce_op),
                         .root = given.root};
  }
  if (given.copy != nullptr) {
    if (given.copy->kind > CORRO_COPY_WRITE) {
      return {Code::kInvalidArgument,
              fmt::format("services[{}].copy: unknown kind {}", index, given.copy->kind)};
    }
    service.copy = {.kind = static_cast<graph::CopyKind>(given.copy->kind),
                    .path = text_of(given.copy->path),
                    .offset = given.copy->offset,
                    .stride = given.copy->stride,
                    .count = given.copy->count};
  }
  plan.add_service(std::move(service));
  return {};
}

Status read_plan(const corro_plan_spec* given, graph::Plan& plan) {
  corro_plan_spec spec;
  CORRO_TRY(read_struct(given, spec));
  plan.ranks = spec.ranks;
  for (size_t i = 0; i < spec.lane_count; ++i) {
    const corro_plan_lane& lane = spec.lanes[i];
    if (lane.order > CORRO_ORDER_AGREED)
      return {Code::kInvalidArgument,
              fmt::format("lanes[{}].order: unknown order {}", i, lane.order)};
    const bool agreed = lane.order == CORRO_ORDER_AGREED;
    plan.add_lane({.name = text_of(lane.name),
                   .order = agreed ? graph::LaneOrder::kAgreed : graph::LaneOrder::kPriority,
                   .depth = lane.depth,
                   .ranks = list_of(lane.ranks, lane.rank_count)});
  }
  for (size_t i = 0; i < spec.channel_count; ++i) {
    const corro_plan_channel& channel = spec.channels[i];
    plan.add_channel({.name = text_of(channel.name),
                      .slots = channel.slots,
                      .initial = channel.initial,
                      .slot_bytes = channel.slot_bytes,
                      .transfer = Duration(channel.transfer_ns)});
  }
  for (size_t i = 0; i < spec.service_count; ++i)
    CORRO_TRY(read_service(spec.services[i], i, plan));
  return {};
}

/// Sizes are the loader's to check, who knows the plan.
std::vector<runtime::ChannelMemory> read_memory(const corro_plan_options& options) {
  std::vector<runtime::ChannelMemory> memory;
  for (const corro_plan_memory& given : std::span(options.memory, options.memory_count)) {
    runtime::ChannelMemory& one = memory.emplace_back();
    one.channel = given.channel;
    for (const corro_slot& slot : std::span(given.slots, given.slot_count))
      one.slots.emplace_back(static_cast<std::byte*>(slot.data), slot.bytes);
  }
  return memory;
}

void make_lanes(corro_plan& plan) {
  const runtime::PlanPart& part = plan.plan->part();
  const graph::Plan& whole = part.whole();
  for (graph::LaneId id = 0; id < whole.lanes.size(); ++id) {
    runtime::PulledLane* pulled = part.pulled_lane(id);
    plan.lanes.emplace_back();
    if (pulled == nullptr) continue;
    plan.lanes.back() = std::make_unique<corro_lane>(
        &plan, pulled, std::vector<corro_lane::Slots>(whole.services.size()));
  }
}

void copy_slots(const runtime::PulledFiring& firing, corro_lane::Slots& into) {
  into.inputs.clear();
  for (const graph::Slot* slot : firing.inputs)
    into.inputs.push_back({slot->data.data(), slot->size_bytes});
  into.outputs.clear();
  for (const graph::Slot* slot : firing.outputs)
    into.outputs.push_back({slot->data.data(), slot->data.size()});
  into.filled = firing.outputs;
}

/// Without slots.
runtime::PulledFiring pulled_of(const corro_firing& firing) {
  return {.service = firing.service,
          .generation = {.micro = firing.micro},
          .inputs = {},
          .outputs = {},
          .ticket = {firing.ticket[0], firing.ticket[1]}};
}

/// Driver::next(), and whether other lanes are served meanwhile.
corro::Result<runtime::PulledFiring> next_firing(corro_lane& lane, Duration timeout) {
  runtime::Driver& driver = lane.plan->driver();
  while (true) {
    const Duration slice = std::min(timeout, corro::api::kLook);
    auto next = driver.next(*lane.lane, slice);
    if (next.ok() || next.status().code() != Code::kDeadlineExceeded) return next;
    if (lane.plan->plan->has_stopped() || timeout == Duration::zero()) return next;
    driver.call([&](runtime::Engine&) { lane.plan->plan->check_served(corro::monotonic_now()); });
    timeout -= slice;
  }
}

}  // namespace

extern "C" {

corro_code corro_plan_load(corro_group* group, const corro_plan_spec* spec,
                           const corro_plan_options* given, corro_plan** plan, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *plan = nullptr;
    CORRO_TRY(check_group(group));
    corro_plan_options options{};
    if (given != nullptr) CORRO_TRY(read_struct(given, options));
    graph::Plan whole;
    CORRO_TRY(read_plan(spec, whole));
    runtime::LoadOptions load;
    load.first = options.first;
    load.timeout = Duration(options.timeout_ns);
    load.memory = read_memory(options);
    auto made = std::make_unique<corro_plan>(corro_plan{group, nullptr, {}, 0});
    Status status;
    made->driver().call([&](runtime::Engine& engine) {
      const auto loaded = engine.load(*group->group, whole, load);
      status = loaded.status();
      if (status.ok()) made->plan = *loaded;
    });
    CORRO_TRY(status);
    const std::string first = fmt::format("first {}", load.first);
    made->digest = runtime::derive_key(made->plan->part().key(), first).key;
    make_lanes(*made);
    *plan = made.release();
    return {};
  });
}

uint64_t corro_plan_digest(const corro_plan* plan) { return plan->digest; }

corro_code corro_plan_run(corro_plan* plan, uint32_t until, corro_work** work, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *work = nullptr;
    CORRO_TRY(check_plan(plan));
    auto handle = std::make_unique<corro_work>(plan->group->engine, nullptr, plan->plan);
    plan->driver().call([&](runtime::Engine&) { handle->state = plan->plan->run_until(until); });
    *work = handle.release();
    return {};
  });
}

corro_code corro_plan_stop(corro_plan* plan, corro_code code, const char* message,
                           corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    if (code < CORRO_CANCELLED || code > CORRO_UNAUTHENTICATED)
      return {Code::kInvalidArgument, fmt::format("code {} is no error", code)};
    const Status cause(static_cast<Code>(code), text_of(message));
    plan->driver().call([&](runtime::Engine&) {
      const corro::Time now = corro::monotonic_now();
      (void)plan->plan->poll(now);  // A firing that has failed is the better reason.
      plan->plan->stop(cause, now);
    });
    return {};
  });
}

int corro_plan_stopped(const corro_plan* plan) { return plan->plan->has_stopped() ? 1 : 0; }

corro_code corro_plan_completed(corro_plan* plan, uint32_t* micro, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    plan->driver().call([&](runtime::Engine&) { *micro = plan->plan->completed(); });
    return {};
  });
}

corro_code corro_plan_completed_by(corro_plan* plan, uint32_t service, uint32_t* micro,
                                   corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    std::optional<uint32_t> found;
    plan->driver().call(
        [&](runtime::Engine&) { found = plan->plan->part().completed_by(service); });
    if (!found)
      return {Code::kNotFound, fmt::format("there is no service {} on this rank", service)};
    *micro = *found;
    return {};
  });
}

corro_code corro_plan_keep_memory(corro_plan* plan, void** memory, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *memory = nullptr;
    CORRO_TRY(check_plan(plan));
    const std::shared_ptr<std::byte>& slots = plan->plan->part().memory();
    if (slots != nullptr) corro::api::keep_arena(slots);
    *memory = slots.get();
    return {};
  });
}

corro_code corro_plan_slot(corro_plan* plan, uint32_t channel, uint32_t slot, void** data,
                           uint64_t* bytes, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    std::vector<graph::Slot*> slots;
    plan->driver().call([&](runtime::Engine&) { slots = plan->plan->part().slots(channel); });
    if (slot >= slots.size()) {
      return {Code::kNotFound,
              fmt::format("there is no slot {} of channel {} on this rank", slot, channel)};
    }
    *data = slots[slot]->data.data();
    *bytes = slots[slot]->data.size();
    return {};
  });
}

size_t corro_plan_describe(corro_plan* plan, char* text, size_t size) {
  std::string whole;
  (void)guarded(nullptr, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    plan->driver().call([&](runtime::Engine&) { whole = plan->plan->describe_waiting(); });
    return {};
  });
  if (size > 0) {
    const size_t length = std::min(whole.size(), size - 1);
    whole.copy(text, length);
    text[length] = '\0';
  }
  return whole.size();
}

void corro_plan_unload(corro_plan* plan) {
  const std::unique_ptr<corro_plan> freed(plan);
  if (plan == nullptr) return;
  (void)guarded(nullptr, [&]() -> Status {
    CORRO_TRY(check_plan(plan));
    plan->driver().call(
        [&](runtime::Engine& engine) { engine.unload(*plan->group->group, *plan->plan); });
    return {};
  });
}

corro_lane* corro_plan_lane_of(corro_plan* plan, uint32_t lane) {
  return lane < plan->lanes.size() ? plan->lanes[lane].get() : nullptr;
}

corro_code corro_lane_next(corro_lane* lane, corro_firing* firing, int64_t timeout_ns,
                           corro_error* error) {
  return guarded(error, [&]() -> Status {
    if (lane == nullptr) return {Code::kInvalidArgument, "this lane is not pulled on this rank"};
    CORRO_TRY(check_plan(lane->plan));
    const Duration timeout = timeout_ns < 0 ? Duration::max() : Duration(timeout_ns);
    CORRO_ASSIGN(const runtime::PulledFiring next, next_firing(*lane, timeout));
    corro_lane::Slots& slots = lane->slots[next.service];
    copy_slots(next, slots);
    *firing = {.service = next.service,
               .micro = next.generation.micro,
               .inputs = slots.inputs.data(),
               .input_count = slots.inputs.size(),
               .outputs = slots.outputs.data(),
               .output_count = slots.outputs.size(),
               .lane = lane,
               .ticket = {next.ticket.task, next.ticket.sequence}};
    return {};
  });
}

corro_code corro_firing_fill(const corro_firing* firing, size_t output, uint64_t bytes,
                             corro_error* error) {
  return guarded(error, [&]() -> Status {
    const corro_lane& lane = *firing->lane;
    CORRO_TRY(check_plan(lane.plan));
    runtime::PulledFiring pulled = pulled_of(*firing);
    pulled.outputs = lane.slots.at(firing->service).filled;
    return lane.lane->fill(pulled, output, bytes);
  });
}

corro_code corro_firing_done(const corro_firing* firing, corro_code code, const char* message,
                             corro_error* error) {
  return guarded(error, [&]() -> Status {
    const corro_lane& lane = *firing->lane;
    CORRO_TRY(check_plan(lane.plan));
    const bool known = code >= CORRO_OK && code <= CORRO_UNAUTHENTICATED;
    const Code meant = known ? static_cast<Code>(code) : Code::kUnknown;
    const Status outcome = meant == Code::kOk ? Status() : Status(meant, text_of(message));
    return lane.plan->driver().done(*lane.lane, pulled_of(*firing), outcome);
  });
}

}  // extern "C"
