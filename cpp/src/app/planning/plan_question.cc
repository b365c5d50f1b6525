#include "app/planning/plan_question.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "base/nearest_name.h"
#include "plan/cost/run_report.h"
#include "plan/cost/runs.h"
#include "plan/model/known_models.h"
#include "plan_files/plan_files.h"

namespace corro::app {
namespace {

/// What looks like a file is one; a name that is known wins over a file of that name.
bool names_file(const std::string& model) {
  for (const char* ending : {".json", ".yaml", ".yml"}) {
    if (model.ends_with(ending)) return true;
  }
  if (model.find('/') != std::string::npos) return true;
  for (const plan::KnownModel& known : plan::known_models()) {
    if (known.name == model) return false;
  }
  std::error_code none;
  return std::filesystem::exists(model, none);
}

Result<plan::Model> read_named_model(const std::string& model, const plan::ModelOptions& options) {
  if (names_file(model)) return plan_files::load_model(model, options);
  auto known = plan::make_known_model(model, options);
  return known.ok() ? std::move(known)
                    : Result<plan::Model>(known.status().with_context("--model"));
}

}  // namespace

Result<plan::Calibration> read_params(const std::string& path) {
  if (path.empty()) return plan::Calibration{};
  return plan_files::load_calibration(path);
}

Result<plan::Request> read_question(const PlanQuestion& question,
                                    std::vector<std::string>& remarks) {
  plan::Request request;
  CORRO_ASSIGN(request.model, read_named_model(question.model, {.sequence = question.sequence,
                                                                .remarks = &remarks}));
  CORRO_ASSIGN(request.cluster, plan_files::load_cluster(question.cluster));
  CORRO_ASSIGN(request.calibration, read_params(question.params));
  if (!question.profile.empty()) {
    CORRO_ASSIGN(plan::Profile profile, plan_files::load_profile(question.profile));
    request.profile = std::make_shared<const plan::Profile>(std::move(profile));
  }
  request.global_batch = question.global_batch;
  request.samples = question.samples;
  request.bytes_per_sample = question.bytes_per_sample;
  request.objective = question.objective;
  request.trainer = question.trainer;
  request.memory_limit = question.memory_limit;
  request.pins = question.pins;
  return request;
}

Result<plan::Machine> read_machine_of(const std::string& cluster,
                                      const plan::Calibration& calibration) {
  if (cluster.empty()) {
    plan::Machine machine = plan::default_machine();
    machine.calibration = calibration;
    return machine;
  }
  CORRO_ASSIGN(const plan::Cluster hosts, plan_files::load_cluster(cluster));
  auto machine = plan::machine_of(hosts, calibration);
  return machine.ok() ? std::move(machine)
                      : Result<plan::Machine>(machine.status().with_context(cluster));
}

Result<plan::Cluster> without_hosts(plan::Cluster cluster, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::set<std::string> known;
    uint32_t host = 0;
    while (host < cluster.host_count() && cluster.host_name(host) != name) {
      known.insert(cluster.host_name(host++));
    }
    if (host == cluster.host_count()) {
      const std::string nearest = nearest_name(name, known);
      return Status(Code::kNotFound,
                    fmt::format("--remove: there is no host \"{}\"{}", name,
                                nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
    if (cluster.host_count() == 1) {
      return Status(Code::kInvalidArgument, "--remove: no host would be left");
    }
    cluster = cluster.without_host(host);
  }
  return cluster;
}

}  // namespace corro::app
