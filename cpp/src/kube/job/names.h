// Names and labels of a job's objects: all follow from job, role, index and generation, so that
// what is created twice has the same name twice.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

enum class Member : uint8_t { kHead, kWorker, kLauncher };
/// Returns "head", "worker", "launcher".
[[nodiscard]] std::string_view name_of(Member member);

using Labels = std::map<std::string, std::string>;

inline constexpr std::string_view kUidLabel = "training.corro.dev/job-uid";
inline constexpr std::string_view kRoleLabel = "training.corro.dev/role";
inline constexpr std::string_view kIndexLabel = "training.corro.dev/index";
inline constexpr std::string_view kGenerationLabel = "training.corro.dev/generation";
/// The round of the job that a pod was made in: an annotation.
inline constexpr std::string_view kRoundAnnotation = "training.corro.dev/round";
/// What an object was made from, hashed: an annotation.
inline constexpr std::string_view kHashAnnotation = "training.corro.dev/hash";

/// Kueue's: the queue that a pod is in, and the scheduling gate that a pod has until the queue
/// admits it.
inline constexpr std::string_view kQueueLabel = "kueue.x-k8s.io/queue-name";
inline constexpr std::string_view kQueueGate = "kueue.x-k8s.io/admission";

/// Key of a member in status.members and in the job's Secret: "head", "launcher", "worker-3".
[[nodiscard]] std::string member_key(Member member, int index);
/// Host name of a worker, in each of its generations: "JOB-worker-3".
[[nodiscard]] std::string worker_host(const JobSpec& spec, int index);
[[nodiscard]] std::string launcher_host(const JobSpec& spec);
/// Name of a member's pod: MPIJob's generation 0 has none in its name, as always.
[[nodiscard]] std::string pod_name(const JobSpec& spec, Member member, int index, int generation);

[[nodiscard]] std::string head_service_name(const JobSpec& spec);
[[nodiscard]] std::string config_name(const JobSpec& spec);
[[nodiscard]] std::string ssh_secret_name(const JobSpec& spec);
/// The Secret that has the key of this worker; those of head and launcher are in that of worker 0.
[[nodiscard]] std::string secret_name(const JobSpec& spec, int index);
/// Workers whose keys are in one Secret.
inline constexpr int kMembersInSecret = 256;
/// How many Secrets a job with so many workers has.
[[nodiscard]] int secret_parts(int workers);

/// Labels of all objects but pods.
[[nodiscard]] Labels object_labels(const JobSpec& spec);
/// Labels of a member's pod, MPIJob's own beside ours. The launcher Job's template has no
/// generation.
[[nodiscard]] Labels pod_labels(const JobSpec& spec, Member member, int index, int generation);
/// What the headless Service selects.
[[nodiscard]] Labels service_selector(const JobSpec& spec);

}  // namespace corro::kube
