// The calibration's file, version 1 (docs/planner.md): the fields of Calibration as JSON, all of
// them, read with one clear error line.
//
//   CORRO_ASSIGN(const Calibration calibration, read_calibration(text, "params.json"));
//   const std::string text = write_calibration(calibration);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/cost/calibration.h"

namespace corro::plan {

inline constexpr uint64_t kCalibrationVersion = 1;
inline constexpr size_t kMostCalibrationBytes = size_t{1} << 16U;

/// Reads a calibration. INVALID_ARGUMENT "name:line: place: what is wrong" for a field that is not
/// known, missing, no number or beyond what kCalibrationFields allows.
[[nodiscard]] Result<Calibration> read_calibration(std::string_view text, std::string_view name);

/// Writes a file from which read_calibration() gives the same numbers to the bit, if they are
/// within what kCalibrationFields allows.
[[nodiscard]] std::string write_calibration(const Calibration& calibration);

}  // namespace corro::plan
