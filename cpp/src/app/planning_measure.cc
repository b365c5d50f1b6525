// `corro plan --measure`: a job with a rank for each device of the cluster, in which Python runs
// the model by one plan after the other.
#include <fmt/format.h>

#include <utility>

#include "app/commands.h"
#include "app/plan_question.h"
#include "app/planning.h"
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

}  // namespace

int measure_plans(const PlanCommand& command, const Variables& environment) {
  const PlanQuestion& question = command.question;
  const auto cluster = read_measurable(question.cluster);
  if (!cluster.ok()) {
    complain(cluster.status().with_context(name_of(command.action)).message());
    return diagnosis::kUsageExit;
  }
  launch::RunOptions job;
  job.ranks = static_cast<int>(cluster->device_count());
  job.hosts = command.hosts.hosts;
  job.hostfile = command.hosts.hostfile;
  job.network = command.hosts.network;
  job.rsh = command.hosts.rsh;
  job.module = true;
  job.long_wait = Duration::zero();  // The fill of a pipeline is no news.
  job.command = {"corro.torch.measure", question.model, "--cluster",
                 question.cluster,      "--device",     cluster->types[0].name};
  const auto add = [&](const char* name, std::string value) {
    job.command.insert(job.command.end(), {name, std::move(value)});
  };
  if (question.global_batch > 0) add("--global-batch", std::to_string(question.global_batch));
  if (question.memory_limit > 0) add("--memory-limit", std::to_string(question.memory_limit));
  if (!command.json.empty()) add("--json", command.json);
  // Memory that is freed goes back at once, so that what a plan takes can be seen.
  job.env = {"MALLOC_MMAP_THRESHOLD_=65536", "MALLOC_TRIM_THRESHOLD_=65536", "OMP_NUM_THREADS=1"};
  return run_command(job, environment);
}

}  // namespace corro::app
