#include "plan_files/plan_files.h"

#include <fmt/format.h>

#include "io/files.h"
#include "plan/json.h"
#include "plan/yaml.h"

namespace corro::plan_files {

Result<std::string> read_text(const std::string& path, size_t most) {
  Result<std::string> text = io::read_file(path, most);
  if (text.ok()) return text;
  if (text.status().code() != Code::kResourceExhausted) return text.status().with_context(path);
  return Status(Code::kInvalidArgument,
                fmt::format("{}: is longer than the {} bytes that are read at most", path, most));
}

Result<plan::Model> load_model(const std::string& path, const plan::ModelOptions& options) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostModelBytes));
  return plan::read_model(text, path, options);
}

Result<plan::Tables> load_tables(const std::string& path) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostYamlBytes));
  return plan::read_tables(text, path);
}

Result<plan::Cluster> load_cluster(const std::string& path) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostYamlBytes));
  return read_cluster(text, path);
}

Result<plan::Cluster> read_cluster(const std::string& text, const std::string& name) {
  return plan::read_cluster(
      text, name, [](const std::string& path) { return read_text(path, plan::kMostYamlBytes); });
}

Result<plan::Calibration> load_calibration(const std::string& path) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostCalibrationBytes));
  return plan::read_calibration(text, path);
}

Result<plan::Profile> load_profile(const std::string& path) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostProfileBytes));
  return plan::read_profile(text, path);
}

Result<plan::DecisionFile> load_decision(const std::string& path) {
  CORRO_ASSIGN(const std::string text, read_text(path, plan::kMostJsonBytes));
  return plan::read_decision(text, path);
}

}  // namespace corro::plan_files
