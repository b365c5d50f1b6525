#include "plan/cost/calibration_file.h"

#include <fmt/format.h>

#include "plan/json.h"

namespace corro::plan {

Result<Calibration> read_calibration(std::string_view text, std::string_view name) {
  if (text.size() > kMostCalibrationBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is longer than {} bytes", name, kMostCalibrationBytes));
  }
  CORRO_ASSIGN(const Json document, parse_json(text, name));
  Reading reading(name, text);
  check_version(document, "corro_calibration", kCalibrationVersion, reading);
  CORRO_TRY(reading.status());
  ObjectReader top(
      document, {}, reading,
      {"corro_calibration", "matmul_efficiency", "memory_efficiency", "link_efficiency",
       "network_efficiency", "collective_seconds", "operator_seconds"});
  Calibration calibration;
  for (const CalibrationField& field : kCalibrationFields) {
    calibration.*field.field = top.real(field.name, {field.least, field.most});
  }
  CORRO_TRY(reading.status());
  return calibration;
}

std::string write_calibration(const Calibration& calibration) {
  nlohmann::ordered_json document = {{"corro_calibration", kCalibrationVersion}};
  for (const CalibrationField& field : kCalibrationFields) {
    document[std::string(field.name)] = calibration.*field.field;
  }
  return document.dump(2) + "\n";
}

}  // namespace corro::plan
