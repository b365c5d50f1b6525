#include "kube/job/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::kube {
namespace {

/// MPIJob's labels of a pod, as each version had them.
void add_mpi_labels(const JobSpec& spec, std::string_view role, Labels& labels) {
  switch (spec.version) {
    case MpiVersion::kV1alpha1:
    case MpiVersion::kV1alpha2:
      labels["group_name"] = "kubeflow.org";
      labels["mpi_job_name"] = spec.name;
      labels["mpi_role_type"] = role;
      return;
    case MpiVersion::kV1:
      labels["group-name"] = "kubeflow.org";
      labels["mpi-job-name"] = spec.name;
      labels["mpi-job-role"] = role;
      return;
    case MpiVersion::kV2beta1:
      labels["training.kubeflow.org/operator-name"] = "mpi-operator";
      labels["training.kubeflow.org/job-name"] = spec.name;
      labels["training.kubeflow.org/job-role"] = role;
      return;
  }
}

/// v2beta1's index: the launcher is 0 where it is a worker too.
void add_mpi_index(const JobSpec& spec, Member member, int index, Labels& labels) {
  constexpr const char* kIndex = "training.kubeflow.org/replica-index";
  if (spec.version != MpiVersion::kV2beta1) return;
  if (member == Member::kWorker)
    labels[kIndex] = std::to_string(index + (spec.launcher_is_worker ? 1 : 0));
  if (member == Member::kLauncher && spec.launcher_is_worker) labels[kIndex] = "0";
}

}  // namespace

std::string_view name_of(Member member) {
  switch (member) {
    case Member::kHead:
      return "head";
    case Member::kWorker:
      return "worker";
    case Member::kLauncher:
      return "launcher";
  }
  return "";
}

std::string member_key(Member member, int index) {
  return member == Member::kWorker ? fmt::format("worker-{}", index) : std::string(name_of(member));
}

std::string worker_host(const JobSpec& spec, int index) {
  return fmt::format("{}-worker-{}", spec.name, index);
}

std::string launcher_host(const JobSpec& spec) { return spec.name + "-launcher"; }

std::string pod_name(const JobSpec& spec, Member member, int index, int generation) {
  const std::string name = fmt::format("{}-{}", spec.name, member_key(member, index));
  const bool is_bare = generation == 0 && (spec.is_mpi() || member == Member::kHead);
  return is_bare ? name : fmt::format("{}-g{}", name, generation);
}

std::string head_service_name(const JobSpec& spec) { return spec.name + "-head"; }

std::string config_name(const JobSpec& spec) { return spec.name + "-config"; }

std::string ssh_secret_name(const JobSpec& spec) { return spec.name + "-ssh-" + spec.uid; }

std::string secret_name(const JobSpec& spec, int index) {
  const int part = index / kMembersInSecret;
  const std::string first = fmt::format("{}-{}", spec.name, spec.uid);
  return part == 0 ? first : fmt::format("{}-{}", first, part);
}

int secret_parts(int workers) { return (std::max(workers, 1) - 1) / kMembersInSecret + 1; }

Labels object_labels(const JobSpec& spec) {
  Labels labels{{std::string(kUidLabel), spec.uid}, {std::string(kRoleLabel), "job"}};
  if (spec.is_mpi()) labels["app"] = spec.name;
  return labels;
}

Labels pod_labels(const JobSpec& spec, Member member, int index, int generation) {
  Labels labels{{std::string(kUidLabel), spec.uid},
                {std::string(kRoleLabel), std::string(name_of(member))}};
  const bool by_job = member == Member::kLauncher && !spec.launcher_is_pod();
  if (!by_job) labels[std::string(kGenerationLabel)] = std::to_string(generation);
  if (member == Member::kWorker) labels[std::string(kIndexLabel)] = std::to_string(index);
  if (!spec.is_mpi() || member == Member::kHead) return labels;
  add_mpi_labels(spec, name_of(member), labels);
  add_mpi_index(spec, member, index, labels);
  return labels;
}

Labels service_selector(const JobSpec& spec) {
  if (spec.is_mpi() && spec.version == MpiVersion::kV2beta1)
    return {{"training.kubeflow.org/operator-name", "mpi-operator"},
            {"training.kubeflow.org/job-name", spec.name}};
  return {{std::string(kUidLabel), spec.uid}};
}

}  // namespace corro::kube
