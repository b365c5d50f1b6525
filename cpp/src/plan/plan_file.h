// The plan's file, version 1 (docs/plan.md): read with one clear error line, written so that
// reading gives the same plan.
//
//   CORRO_ASSIGN(const graph::Plan plan, read_plan(text, "plan.json"));
//   CORRO_ASSIGN(const std::string text, write_plan(plan));
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "graph/plan.h"
#include "plan/json.h"

namespace corro::plan {

inline constexpr uint64_t kPlanVersion = 1;

/// Reads a plan from a JSON value, which may be part of a larger document. INVALID_ARGUMENT
/// "name: place: what is wrong" for anything but a well formed plan. Whether it can run is
/// graph::check()'s to say.
[[nodiscard]] Result<graph::Plan> from_json(const Json& value, std::string_view name);
/// The same for the text of a file.
[[nodiscard]] Result<graph::Plan> read_plan(std::string_view text, std::string_view name);

/// Returns the plan as a JSON value, for a larger document. Fields that hold their default are left
/// out. INVALID_ARGUMENT for a plan that from_json() would refuse.
[[nodiscard]] Result<nlohmann::ordered_json> to_json(const graph::Plan& plan);
/// The same as a file's text: a line for each lane, channel and service.
[[nodiscard]] Result<std::string> write_plan(const graph::Plan& plan);

}  // namespace corro::plan
