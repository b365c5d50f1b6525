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

/// A plan as corro.plan gives it: names resolved to numbers, enums to those of corro.h.
struct PlanSpec {
  using Lane = std::tuple<std::string, uint8_t, uint32_t, std::vector<uint32_t>>;
  using Channel = std::tuple<std::string, uint32_t, uint32_t, uint64_t, int64_t>;
  using Operation = std::tuple<uint8_t, uint8_t, uint64_t, uint8_t, uint32_t>;
  using Service = std::tuple<std::string, uint32_t, int32_t, int64_t, std::vector<uint32_t>,
                             std::vector<uint32_t>, std::optional<Operation>>;
  uint32_t ranks = 1;
  std::vector<Lane> lanes;
  std::vector<Channel> channels;
  std::vector<Service> services;
};

/// The loaded plan's lifetime, shared by all that points into it. Guarded by the GIL.
struct PlanRef {
  EnginePtr engine;
  nb::object group;  ///< Outlives the plan.
  corro_plan* plan = nullptr;

  /// The plan, if it may still be used.
  [[nodiscard]] corro_plan* get() const;
  void unload();
};

/// A firing in this process's hands. Its memory is there as long as the plan is loaded.
class Firing {
 public:
  Firing(std::shared_ptr<PlanRef> plan, const corro_firing& firing);

  [[nodiscard]] uint32_t service() const { return firing_.service; }
  [[nodiscard]] uint32_t micro() const { return firing_.micro; }
  [[nodiscard]] std::vector<Bytes> inputs() const { return views(inputs_); }
  [[nodiscard]] std::vector<Bytes> outputs() const { return views(outputs_); }
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
       uint32_t first, const Seconds& timeout);
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
