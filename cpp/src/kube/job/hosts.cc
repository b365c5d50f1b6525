#include "kube/job/hosts.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/job/names.h"

namespace corro::kube {
namespace {

std::string host_line(const JobSpec& spec, const std::string& host,
                      std::string_view cluster_domain) {
  const std::string address = host_address(spec, host, cluster_domain);
  return spec.implementation == MpiImplementation::kOpenMpi
             ? fmt::format("{} slots={}\n", address, spec.slots)
             : fmt::format("{}:{}\n", address, spec.slots);
}

bool launcher_is_host(const JobSpec& spec) {
  return spec.launcher_is_worker || (spec.version == MpiVersion::kV1 && launcher_has_gpu(spec));
}

}  // namespace

std::string host_address(const JobSpec& spec, const std::string& host,
                         std::string_view cluster_domain) {
  if (spec.is_old_mpi()) return host;
  const std::string address = fmt::format("{}.{}.{}.svc", host, spec.name, spec.space);
  return cluster_domain.empty() ? address : fmt::format("{}.{}", address, cluster_domain);
}

std::string hostfile_text(const JobSpec& spec, std::string_view cluster_domain) {
  std::string text;
  if (launcher_is_host(spec)) text += host_line(spec, launcher_host(spec), cluster_domain);
  for (int i = 0; i < spec.workers; ++i)
    text += host_line(spec, worker_host(spec, i), cluster_domain);
  return text;
}

std::string discover_hosts_text(const JobSpec& spec, const std::vector<int>& running,
                                std::string_view cluster_domain) {
  std::vector<std::string> hosts;
  for (const int index : running) hosts.push_back(worker_host(spec, index));
  std::sort(hosts.begin(), hosts.end());
  if (launcher_is_host(spec)) hosts.insert(hosts.begin(), launcher_host(spec));
  const std::string slots =
      spec.version == MpiVersion::kV1 ? fmt::format(":{}", spec.slots) : std::string();
  std::string text = "#!/bin/sh\n";
  for (const std::string& host : hosts)
    text += fmt::format("echo {}{}\n", host_address(spec, host, cluster_domain), slots);
  return text;
}

std::string kubexec_text(std::string_view remote_shell) {
  return fmt::format("#!/bin/sh\nexec {} \"$@\"\n", remote_shell);
}

bool launcher_has_gpu(const JobSpec& spec) {
  if (!spec.launcher) return false;
  const Json::json_pointer containers("/spec/containers");
  const Json& pod = spec.launcher->pod_template;
  if (!pod.contains(containers)) return false;
  for (const Json& container : pod[containers]) {
    const Json limits = container.value(Json::json_pointer("/resources/limits"), Json::object());
    for (const auto& [resource, amount] : limits.items()) {
      if (resource.find("gpu") != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace corro::kube
