// The objects of a job that are no pods, as JSON to create. Pure functions of spec and options.
#pragma once

#include <string>
#include <vector>

#include "kube/job/names.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

/// Name, namespace, labels and the controller reference to the job.
[[nodiscard]] Json metadata_of(const JobSpec& spec, const std::string& name, const Labels& labels);

[[nodiscard]] Json head_service(const JobSpec& spec);
/// The headless one, for host names.
[[nodiscard]] Json host_service(const JobSpec& spec);
/// MPIJob's files. `running`: workers that run, for discover_hosts.sh.
[[nodiscard]] Json config_map(const JobSpec& spec, const std::vector<int>& running,
                              const Options& options);
/// Without data, which the caller makes.
[[nodiscard]] Json credentials_secret(const JobSpec& spec, int part);
[[nodiscard]] Json ssh_secret(const JobSpec& spec);
/// Only pods of the job reach its pods.
[[nodiscard]] Json network_policy(const JobSpec& spec);

/// Keys that Secret number `part` has.
[[nodiscard]] std::vector<std::string> members_of_secret(const JobSpec& spec, int part);

/// FNV-1a of the JSON's text, as 16 digits.
[[nodiscard]] std::string hash_of(const Json& value);

}  // namespace corro::kube
