// corro._native.Plan, Lane and Firing: the part of the C ABI that is about plans.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine_ref.h"

namespace corro::python {

using Bytes = nb::ndarray<nb::memview, uint8_t, nb::ndim<1>>;

/// A plan as corro.loaded_plan gives it: names resolved to numbers, enums to those of corro.h.
struct PlanSpec {
  using Lane = std::tuple<std::string, uint8_t, uint32_t, std::vector<uint32_t>>;
  using Channel = std::tuple<std::string, uint32_t, uint32_t, uint64_t, int64_t>;
  using Operation = std::tuple<uint8_t, uint8_t, uint64_t, uint8_t, uint32_t>;
  using Copy = std::tuple<uint8_t, std::string, uint64_t, uint64_t, uint64_t>;
  using Service =
      std::tuple<std::string, uint32_t, int32_t, uint32_t, uint32_t, int64_t, std::vector<uint32_t>,
                 std::vector<uint32_t>, std::optional<Operation>, std::optional<Copy>>;
  uint32_t ranks = 1;
  std::vector<Lane> lanes;
  std::vector<Channel> channels;
  std::vector<Service> services;
};

/// The user's memory of a channel's slots, by the channel's number: anything that has a buffer or
/// gives itself by DLPack.
using GivenMemory = std::vector<std::pair<uint32_t, std::vector<nb::object>>>;

/// What a plan's slots lie in: the arena, and what the user has given.
struct SlotMemory {
  std::shared_ptr<void> arena;
  std::vector<nb::ndarray<>> given;
};

/// The loaded plan's lifetime, shared by all that points into it. Guarded by the GIL, but for what
/// happens without it.
class PlanRef {
 public:
  EnginePtr engine;
  nb::object group;  ///< Outlives the plan.
  corro_plan* plan = nullptr;
  std::shared_ptr<SlotMemory> memory;  ///< Until the last view of a slot is gone.

  /// The plan, if it may still be used.
  [[nodiscard]] corro_plan* get() const;
  /// Calls with the plan and without the GIL. The plan outlives the call.
  template <typename Call>
  corro_code without_gil(const Call& call) {
    corro_plan* const used = get();
    calls_.fetch_add(1);
    return engine->without_gil([&] {
      const corro_code code = call(used);
      if (calls_.fetch_sub(1) == 1) calls_.notify_all();
      return code;
    });
  }
  /// The same for a call that fills an error: raises it.
  template <typename Call>
  void checked(const Call& call) {
    corro_error error{};
    error.rank = -1;
    const corro_code code = without_gil([&](corro_plan* used) { return call(used, &error); });
    if (code != CORRO_OK) raise(error);
  }
  /// Other threads' calls are waited for; the next ones fail.
  void unload();

 private:
  const pid_t process_ = getpid();
  std::atomic<uint32_t> calls_{0};
};

/// A firing in this process's hands.
class Firing {
 public:
  Firing(std::shared_ptr<PlanRef> plan, const corro_firing& firing);

  [[nodiscard]] uint32_t service() const { return firing_.service; }
  [[nodiscard]] uint32_t micro() const { return firing_.micro; }
  [[nodiscard]] std::vector<Bytes> inputs() const { return views(inputs_); }
  [[nodiscard]] std::vector<Bytes> outputs() const { return views(outputs_); }
  void fill(size_t output, uint64_t bytes);
  void done(corro_code code, const std::string& message);

 private:
  [[nodiscard]] std::vector<Bytes> views(const std::vector<corro_slot>& slots) const;

  std::shared_ptr<PlanRef> plan_;
  corro_firing firing_;
  std::vector<corro_slot> inputs_;  ///< The firing's own are overwritten by the next one.
  std::vector<corro_slot> outputs_;
};

class Plan {
 public:
  Plan(EnginePtr engine, corro_group* group, nb::object group_object, const PlanSpec& spec,
       uint32_t first, const Seconds& timeout, const GivenMemory& memory);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { ref_->unload(); }

  std::unique_ptr<Work> run(uint32_t until);
  void stop(corro_code code, const std::string& message);
  [[nodiscard]] bool stopped() const { return corro_plan_stopped(ref_->get()) != 0; }
  [[nodiscard]] uint32_t completed() const;
  [[nodiscard]] uint32_t completed_by(uint32_t service) const;
  [[nodiscard]] Bytes slot(uint32_t channel, uint32_t slot) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] bool pulls(uint32_t lane) const;
  /// Blocks; lets Python's handlers of signals run now and then, which may raise.
  std::unique_ptr<Firing> next(uint32_t lane, const Seconds& timeout);
  void unload() { ref_->unload(); }

 private:
  std::shared_ptr<PlanRef> ref_ = std::make_shared<PlanRef>();
};

void bind_plans(nb::module_& module);

}  // namespace corro::python
