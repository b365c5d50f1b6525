#include "plans.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

namespace corro::python {

using namespace nb::literals;
namespace {

constexpr int64_t kSlice = 50'000'000;  ///< Nanoseconds between looks at signals.

/// corro.h's structs of a spec, which they point into.
class SpecInC {
 public:
  explicit SpecInC(const PlanSpec& spec) {
    for (const auto& [name, order, depth, ranks] : spec.lanes)
      lanes_.push_back({name.c_str(), order, depth, ranks.data(), ranks.size()});
    for (const auto& [name, slots, initial, bytes, transfer] : spec.channels)
      channels_.push_back({name.c_str(), slots, initial, bytes, transfer});
    copies_.reserve(spec.services.size());
    for (const auto& [name, lane, priority, lag, every, duration, inputs, outputs, operation,
                      copy] : spec.services) {
      corro_plan_service& service = services_.emplace_back();
      service.name = name.c_str();
      service.lane = lane;
      service.priority = priority;
      service.lag = lag;
      service.every = every;
      service.duration_ns = duration;
      service.inputs = inputs.data();
      service.input_count = inputs.size();
      service.outputs = outputs.data();
      service.output_count = outputs.size();
      if (operation) {
        service.has_operation = 1;
        std::tie(service.kind, service.dtype, service.count, service.reduce_op, service.root) =
            *operation;
      }
      if (copy) {
        const auto& [kind, path, offset, stride, count] = *copy;
        service.copy = &copies_.emplace_back(kind, path.c_str(), offset, stride, count);
      }
    }
    spec_.struct_size = sizeof spec_;
    spec_.ranks = spec.ranks;
    spec_.lanes = lanes_.data();
    spec_.lane_count = lanes_.size();
    spec_.channels = channels_.data();
    spec_.channel_count = channels_.size();
    spec_.services = services_.data();
    spec_.service_count = services_.size();
  }
  [[nodiscard]] const corro_plan_spec* get() const { return &spec_; }

 private:
  corro_plan_spec spec_{};
  std::vector<corro_plan_lane> lanes_;
  std::vector<corro_plan_channel> channels_;
  std::vector<corro_plan_service> services_;
  std::vector<corro_plan_copy> copies_;
};

/// corro.h's structs of the user's memory, which they point into.
class MemoryInC {
 public:
  MemoryInC(const PlanSpec& spec, const GivenMemory& given, std::vector<nb::ndarray<>>& arrays)
      : slots_(given.size()) {
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& [channel, slots] = given[i];
      for (size_t slot = 0; slot < slots.size(); ++slot) {
        nb::ndarray<nb::device::cpu, nb::c_contig> array;
        if (!nb::try_cast(slots[slot], array, /*convert=*/false)) refuse(spec, channel, slot);
        slots_[i].push_back({array.data(), array.nbytes()});
        arrays.emplace_back(array);
      }
      memory_.push_back({channel, slots_[i].data(), slots_[i].size()});
    }
  }
  void add_to(corro_plan_options& options) const {
    options.memory = memory_.data();
    options.memory_count = memory_.size();
  }

 private:
  [[noreturn]] static void refuse(const PlanSpec& spec, uint32_t channel, size_t slot) {
    const std::string text =
        "plan: memory: slot " + std::to_string(slot) + " of channel \"" +
        std::get<0>(spec.channels.at(channel)) +
        "\" has to be contiguous host memory that can be written: a bytearray, an array, a "
        "detached CPU tensor";
    raise(CORRO_INVALID_ARGUMENT, text.c_str());
  }

  std::vector<std::vector<corro_slot>> slots_;
  std::vector<corro_plan_memory> memory_;
};

/// Keeps the plan's memory where it is for as long as somebody looks at it.
Bytes view(const std::shared_ptr<SlotMemory>& memory, const corro_slot& slot) {
  auto* held = new std::shared_ptr<SlotMemory>(memory);
  const nb::capsule owner(held, [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<SlotMemory>*>(pointer);
  });
  return {slot.data, {static_cast<size_t>(slot.bytes)}, owner};
}

}  // namespace

// -- PlanRef --------------------------------------------------------------------------------------

corro_plan* PlanRef::get() const {
  static_cast<void>(engine->get());
  if (plan == nullptr) raise(CORRO_FAILED_PRECONDITION, "corro: this plan was unloaded");
  return plan;
}

void PlanRef::unload() {
  corro_plan* unloading = std::exchange(plan, nullptr);
  if (unloading == nullptr) return;
  const auto until_unloaded = std::move(memory);
  if (engine->engine == nullptr) return;  // It took the plan along.
  engine->without_gil([&] {
    // In a forked child the calls are the parent's.
    for (uint32_t calls = calls_.load(); calls > 0 && getpid() == process_; calls = calls_.load())
      calls_.wait(calls);
    corro_plan_unload(unloading);
    return CORRO_OK;
  });
  group.reset();
}

// -- Firing ---------------------------------------------------------------------------------------

Firing::Firing(std::shared_ptr<PlanRef> plan, const corro_firing& firing)
    : plan_(std::move(plan)),
      firing_(firing),
      inputs_(firing.inputs, firing.inputs + firing.input_count),
      outputs_(firing.outputs, firing.outputs + firing.output_count) {}

std::vector<Bytes> Firing::views(const std::vector<corro_slot>& slots) const {
  static_cast<void>(plan_->get());
  std::vector<Bytes> views;
  for (const corro_slot& slot : slots) views.push_back(view(plan_->memory, slot));
  return views;
}

void Firing::fill(size_t output, uint64_t bytes) {
  static_cast<void>(plan_->get());
  corro_error error{};
  error.rank = -1;
  if (corro_firing_fill(&firing_, output, bytes, &error) != CORRO_OK) raise(error);
}

void Firing::done(corro_code code, const std::string& message) {
  static_cast<void>(plan_->get());
  corro_error error{};
  error.rank = -1;
  if (corro_firing_done(&firing_, code, message.c_str(), &error) != CORRO_OK) raise(error);
}

// -- Plan -----------------------------------------------------------------------------------------

Plan::Plan(EnginePtr engine, corro_group* group, nb::object group_object, const PlanSpec& spec,
           uint32_t first, const Seconds& timeout, const GivenMemory& memory) {
  ref_->engine = std::move(engine);
  static_cast<void>(ref_->engine->get());
  const SpecInC in_c(spec);
  corro_plan_options options{};
  options.struct_size = sizeof options;
  options.first = first;
  options.timeout_ns = nanoseconds(timeout, 0);
  ref_->memory = std::make_shared<SlotMemory>();
  const MemoryInC memory_in_c(spec, memory, ref_->memory->given);
  memory_in_c.add_to(options);
  ref_->engine->checked([&](corro_error* error) {
    return corro_plan_load(group, in_c.get(), &options, &ref_->plan, error);
  });
  ref_->group = std::move(group_object);
  void* arena = nullptr;
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_keep_memory(plan, &arena, error);
  });
  ref_->memory->arena = {arena, corro_arena_free};
}

std::unique_ptr<Work> Plan::run(uint32_t until) {
  corro_work* work = nullptr;
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_run(plan, until, &work, error);
  });
  return std::make_unique<Work>(ref_->engine, work, ref_->group);
}

void Plan::stop(corro_code code, const std::string& message) {
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_stop(plan, code, message.c_str(), error);
  });
}

uint32_t Plan::completed() const {
  uint32_t micro = 0;
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_completed(plan, &micro, error);
  });
  return micro;
}

uint32_t Plan::completed_by(uint32_t service) const {
  uint32_t micro = 0;
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_completed_by(plan, service, &micro, error);
  });
  return micro;
}

Bytes Plan::slot(uint32_t channel, uint32_t slot) const {
  const std::shared_ptr<SlotMemory> memory = ref_->memory;
  corro_slot found{};
  ref_->checked([&](corro_plan* plan, corro_error* error) {
    return corro_plan_slot(plan, channel, slot, &found.data, &found.bytes, error);
  });
  return view(memory, found);
}

std::string Plan::describe() const {
  corro_plan* plan = ref_->get();
  std::string text(corro_plan_describe(plan, nullptr, 0) + 1, '\0');
  const size_t length = corro_plan_describe(plan, text.data(), text.size());
  text.resize(std::min(length, text.size() - 1));
  return text;
}

bool Plan::pulls(uint32_t lane) const { return corro_plan_lane_of(ref_->get(), lane) != nullptr; }

std::unique_ptr<Firing> Plan::next(uint32_t lane, const Seconds& timeout) {
  int64_t left = nanoseconds(timeout, INT64_MAX);
  while (true) {
    const int64_t slice = std::min(kSlice, left);
    const bool stopped = corro_plan_stopped(ref_->get()) != 0;  // Else it may stop meanwhile.
    corro_error error{};
    error.rank = -1;
    std::unique_ptr<Firing> fired;
    const corro_code code = ref_->without_gil([&](corro_plan* plan) {
      corro_firing firing{};
      const corro_code next =
          corro_lane_next(corro_plan_lane_of(plan, lane), &firing, slice, &error);
      if (next == CORRO_OK) fired = std::make_unique<Firing>(ref_, firing);
      return next;
    });
    if (code == CORRO_OK) return fired;
    left -= slice;
    if (code != CORRO_DEADLINE_EXCEEDED || stopped || left == 0) raise(error);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void bind_plans(nb::module_& module) {
  nb::class_<PlanSpec>(module, "PlanSpec")
      .def(
          "__init__",
          [](PlanSpec* self, uint32_t ranks, std::vector<PlanSpec::Lane> lanes,
             std::vector<PlanSpec::Channel> channels, std::vector<PlanSpec::Service> services) {
            new (self) PlanSpec{ranks, std::move(lanes), std::move(channels), std::move(services)};
          },
          "ranks"_a, "lanes"_a, "channels"_a, "services"_a);
  nb::class_<Firing>(module, "Firing")
      .def_prop_ro("service", &Firing::service)
      .def_prop_ro("micro", &Firing::micro)
      .def_prop_ro("inputs", &Firing::inputs, nb::rv_policy::automatic)
      .def_prop_ro("outputs", &Firing::outputs, nb::rv_policy::automatic)
      .def("fill", &Firing::fill, "output"_a, "bytes"_a)
      .def("done", &Firing::done, "code"_a = 0, "message"_a = "");
  nb::class_<Plan>(module, "Plan")
      .def("run", &Plan::run, "until"_a)
      .def("stop", &Plan::stop, "code"_a, "message"_a)
      .def("stopped", &Plan::stopped)
      .def("completed", &Plan::completed)
      .def("completed_by", &Plan::completed_by, "service"_a)
      .def("slot", &Plan::slot, "channel"_a, "slot"_a)
      .def("describe", &Plan::describe)
      .def("pulls", &Plan::pulls, "lane"_a)
      .def("next", &Plan::next, "lane"_a, "timeout"_a = nb::none())
      .def("unload", &Plan::unload);
}

}  // namespace corro::python
