// `corro plan --measure`: a job with a rank for each device of the cluster, in which Python runs
// the model by one plan after the other.
#include <fmt/format.h>

#include <utility>

#include "app/planning/plan_question.h"
#include "app/planning/planning.h"
#include "app/program.h"
#include "app/subprograms.h"
#include "base/dtype.h"
#include "diagnosis/exit_status.h"
#include "plan_files/plan_files.h"

namespace corro::app {
namespace {

/// All ranks compute alike on one processor each. A device with units for other dtypes is none: a
/// rank for each GPU of a file would compute on the processors of whoever asks.
Result<plan::Cluster> read_measurable(const std::string& path) {
  CORRO_ASSIGN(plan::Cluster cluster, plan_files::load_cluster(path));
  for (const plan::DeviceType& type : cluster.types) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      const bool usual = dtype == DType::kF32 || dtype == DType::kF64;
      if (usual || type.peak[static_cast<size_t>(i)] == 0) continue;
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: device \"{}\" is no processor: --measure runs on processors "
                                "alone, whose peaks are of f32 and f64",
                                path, type.name));
    }
  }
  if (cluster.types.size() != 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: must have one type of device to be measured, not {}", path,
                              cluster.types.size()));
  }
  return cluster;
}

/// The arguments of the `corro run` that measures.
std::vector<std::string> measuring_job(const PlanCommand& command, const plan::Cluster& cluster) {
  std::vector<std::string> words = {"run", "-np", std::to_string(cluster.device_count())};
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  const PlanQuestion& question = command.question;
  add("--hosts", command.hosts.hosts);
  add("--hostfile", command.hosts.hostfile);
  add("--network", command.hosts.network);
  add("--rsh", command.hosts.rsh);
  add("--long-wait", "0");  // The fill of a pipeline is no news.
  // Memory that is freed goes back at once, so that what a plan takes can be seen.
  for (const char* setting :
       {"MALLOC_MMAP_THRESHOLD_=65536", "MALLOC_TRIM_THRESHOLD_=65536", "OMP_NUM_THREADS=1"})
    add("--env", setting);
  words.insert(words.end(), {"--module", "--", "corro.torch.measure", question.model});
  add("--cluster", question.cluster);
  add("--device", cluster.types[0].name);
  if (question.global_batch > 0) add("--global-batch", std::to_string(question.global_batch));
  if (question.memory_limit > 0) add("--memory-limit", std::to_string(question.memory_limit));
  add("--json", command.json);
  return words;
}

}  // namespace

int measure_plans(const PlanCommand& command) {
  const auto cluster = read_measurable(command.question.cluster);
  if (!cluster.ok()) {
    complain(cluster.status().with_context(name_of(command.action)).message());
    return diagnosis::kUsageExit;
  }
  return become(own_directory() + "/corro", "run", measuring_job(command, *cluster));
}

}  // namespace corro::app
