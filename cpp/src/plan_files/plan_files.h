// The planner's input from files: plan/ reads texts alone, and this is where they come from.
//
//   CORRO_ASSIGN(const plan::Model model, plan_files::load_model("config.json"));
//   CORRO_ASSIGN(const plan::Cluster cluster, plan_files::load_cluster("cluster.yaml"));
//
// Every function blocks while it reads, and may be called in any thread. A message begins with the
// path. A file that cannot be opened or read fails with the kernel's reason, one that is too long
// with INVALID_ARGUMENT, and any other as the reader of plan/ says.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "plan/cluster/cluster_file.h"
#include "plan/cost/calibration_file.h"
#include "plan/cost/profile_file.h"
#include "plan/model/model_file.h"
#include "plan/report/decision_file.h"
#include "plan/tables/tables_file.h"

namespace corro::plan_files {

/// Reads a file, or what a pipe brings to its end; of one that is longer, `most` bytes and a few.
[[nodiscard]] Result<std::string> read_text(const std::string& path, size_t most);

[[nodiscard]] Result<plan::Model> load_model(const std::string& path,
                                             const plan::ModelOptions& options = {});
/// Reads the files that it includes, and its matrix, as well.
[[nodiscard]] Result<plan::Cluster> load_cluster(const std::string& path);
/// The same for a text that is not in a file: `name` is where its paths begin.
[[nodiscard]] Result<plan::Cluster> read_cluster(const std::string& text, const std::string& name);
[[nodiscard]] Result<plan::Calibration> load_calibration(const std::string& path);
[[nodiscard]] Result<plan::Profile> load_profile(const std::string& path);
[[nodiscard]] Result<plan::Tables> load_tables(const std::string& path);
[[nodiscard]] Result<plan::DecisionFile> load_decision(const std::string& path);

}  // namespace corro::plan_files
