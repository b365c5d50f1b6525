#include "planning.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "plan/cost/calibration_file.h"
#include "plan/cost/profile_file.h"
#include "plan/json.h"

namespace corro::python {
namespace {

using plan::JobShape;
using plan::Json;
using plan::ObjectReader;
using plan::Pins;
using plan::Place;
using plan::Reading;

constexpr int64_t kMostCount = std::numeric_limits<uint32_t>::max();
constexpr plan::RealRange kAmount{0, 1e30};

Pins read_pins(const Json& json, const Place& place, Reading& reading) {
  ObjectReader object(json, place, reading,
                      {"tensor", "context", "expert", "data", "pipeline", "micro_batch", "chunks",
                       "zero", "sequence_parallel", "recompute", "overlap", "offload", "bucket",
                       "dtype", "gradient_dtype", "schedule"});
  Pins pins;
  const auto count = [&](std::string_view field, std::optional<uint32_t>& pin, int64_t least,
                         int64_t most) {
    if (object.find(field) != nullptr) {
      pin = static_cast<uint32_t>(object.integer(field, {least, most}));
    }
  };
  count("tensor", pins.tensor, 1, kMostCount);
  count("context", pins.context, 1, kMostCount);
  count("expert", pins.expert, 1, kMostCount);
  count("data", pins.data, 1, kMostCount);
  count("pipeline", pins.pipeline, 1, kMostCount);
  count("micro_batch", pins.micro_batch, 1, kMostCount);
  count("chunks", pins.chunks, 1, kMostCount);
  count("zero", pins.zero, 0, 3);
  const auto has = [&](std::string_view field) { return object.find(field) != nullptr; };
  if (has("sequence_parallel")) pins.sequence_parallel = object.boolean("sequence_parallel");
  if (has("overlap")) pins.overlap = object.boolean("overlap");
  if (has("bucket")) pins.bucket = object.quantity("bucket", plan::Unit::kBytes, {1, 1e18});
  if (has("offload")) pins.offload = object.choice<plan::Offload>("offload", plan::kOffloadCount);
  if (has("recompute")) {
    pins.recompute = object.choice<plan::Recompute>("recompute", plan::kRecomputeCount);
  }
  if (has("schedule")) {
    pins.schedule = object.choice<plan::Schedule>("schedule", plan::kScheduleCount);
  }
  if (has("dtype")) pins.dtype = object.choice<DType>("dtype", kDTypeCount);
  if (has("gradient_dtype")) {
    pins.gradient_dtype = object.choice<DType>("gradient_dtype", kDTypeCount);
  }
  return pins;
}

nb::dict to_dict(const JobShape& shape) {
  nb::dict fields;
  fields["tensor"] = shape.tensor;
  fields["context"] = shape.context;
  fields["expert"] = shape.expert;
  fields["data"] = shape.data;
  fields["pipeline"] = shape.pipeline;
  fields["micro_batch"] = shape.micro_batch;
  fields["micro_batches"] = shape.micro_batches;
  fields["chunks"] = shape.chunks;
  fields["schedule"] = std::string(name_of(shape.schedule));
  fields["zero"] = shape.zero;
  fields["sequence_parallel"] = shape.sequence_parallel;
  fields["overlap"] = shape.overlap;
  fields["offload"] = std::string(name_of(shape.offload));
  fields["bucket_bytes"] = shape.bucket;
  fields["dtype"] = std::string(name_of(shape.dtype));
  fields["gradient_dtype"] = std::string(name_of(shape.gradient_dtype));
  return fields;
}

}  // namespace

Result<Options> read_options(std::string_view text) {
  CORRO_ASSIGN(const Json document, plan::parse_json(text, "plan"));
  Reading reading("plan");
  ObjectReader top(document, {}, reading,
                   {"global_batch", "samples", "bytes_per_sample", "objective", "trainer",
                    "memory_limit", "sequence", "pins", "params", "profile"});
  Options options;
  plan::Request& request = options.request;
  request.global_batch = static_cast<uint32_t>(top.integer("global_batch", {0, kMostCount}, 0));
  request.samples = top.real("samples", kAmount, 0);
  request.bytes_per_sample = top.quantity("bytes_per_sample", plan::Unit::kBytes, kAmount, 0);
  request.objective =
      top.choice<plan::Objective>("objective", plan::kObjectiveCount, plan::Objective::kTime);
  request.trainer =
      top.choice<plan::Trainer>("trainer", plan::kTrainerCount, plan::Trainer::kCorro);
  request.memory_limit = top.quantity("memory_limit", plan::Unit::kBytes, kAmount, 0);
  options.model.sequence = static_cast<uint32_t>(top.integer("sequence", {1, 1 << 24}, 0));
  const Place at{nullptr, "pins", {}};
  if (const Json* pins = top.find("pins")) request.pins = read_pins(*pins, at, reading);
  CORRO_TRY(reading.status());
  if (const Json* params = top.find("params")) {
    CORRO_ASSIGN(request.calibration, plan::read_calibration(params->dump(), "plan: params"));
  }
  if (const Json* profile = top.find("profile")) {
    CORRO_ASSIGN(plan::Profile read, plan::read_profile(profile->dump(), "plan: profile"));
    request.profile = std::make_shared<const plan::Profile>(std::move(read));
  }
  return options;
}

/// Called on the planning thread without the GIL. After a failure nobody is asked any more: an
/// empty answer is passed over, and the plan that comes out is thrown away.
template <typename Fill>
std::vector<uint32_t> PythonPolicies::ask(size_t number, Fill fill) {
  const nb::gil_scoped_acquire acquire;
  if (raised_) return {};
  try {
    nb::dict question;
    fill(question);
    return nb::cast<std::vector<uint32_t>>(functions_[number](question));
  } catch (nb::python_error& error) {
    raised_.emplace(std::move(error));
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "plan: a policy must return a list of integers");
    raised_.emplace();
  }
  return {};
}

PythonPolicies::PythonPolicies(const nb::list& listed) {
  for (const nb::handle item : listed) {
    const auto kind = nb::cast<std::string>(item[0]);
    const auto name = nb::cast<std::string>(item[1]);
    const size_t number = functions_.size();
    functions_.push_back(nb::borrow(item[2]));
    if (kind == "cut") {
      native_.cuts.emplace_back(name, [this, number](const plan::CutQuestion& question) {
        return ask(number, [&question](nb::dict& fields) {
          fields["shape"] = to_dict(question.shape);
          fields["seconds"] = question.seconds;
          fields["memory"] = question.memory;
          fields["memory_limit"] = question.memory_limit;
        });
      });
    } else if (kind == "schedule") {
      native_.schedules.emplace_back(name, [this, number](const plan::ScheduleQuestion& question) {
        return ask(number, [&question](nb::dict& fields) {
          fields["shape"] = to_dict(question.shape);
          fields["forward"] = question.forward;
          fields["backward"] = question.backward;
          fields["most"] = question.most;
        });
      });
    } else {
      native_.placements.emplace_back(
          name, [this, number](const plan::PlacementQuestion& question) {
            return ask(number, [&question](nb::dict& fields) {
              fields["shape"] = to_dict(question.shape);
              fields["devices"] = question.devices;
              fields["bandwidth"] = nb::cpp_function(question.bandwidth);
              fields["bytes"] = question.bytes;
            });
          });
    }
  }
}

void PythonPolicies::rethrow() {
  if (raised_) throw nb::python_error(*std::exchange(raised_, std::nullopt));
}

}  // namespace corro::python
