// JobSpec: what a job's manifest asks for, whatever its kind and version: MPIJob of four versions
// and CorroJob are read into it (read_job.h), with the operator's defaults filled in.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corro::kube {

using Json = nlohmann::json;

/// Points of wall-clock time, as Kubernetes writes them: whole seconds, UTC.
using KubeTime = std::chrono::sys_seconds;

inline constexpr int kMostWorkers = 10000;
inline constexpr int kMostSlots = 1024;

enum class JobKind : uint8_t { kMpiJob, kCorroJob };
/// What `spec.writtenAs` says; v2beta1 if it says nothing.
enum class MpiVersion : uint8_t { kV1alpha1, kV1alpha2, kV1, kV2beta1 };
enum class MpiImplementation : uint8_t { kOpenMpi, kIntel, kMpich };
enum class CleanPods : uint8_t { kNone, kRunning, kAll };
enum class Gang : uint8_t { kOff, kAuto, kNative, kVolcano, kSchedulerPlugins };
enum class RestartPolicy : uint8_t { kNever, kOnFailure };

/// Why a pod ended without success, the one that is blamed first first.
enum class Cause : uint8_t { kOutOfMemory, kUserError, kLostPod };
inline constexpr std::array kCauses = {Cause::kOutOfMemory, Cause::kUserError, Cause::kLostPod};
/// Returns the field of it: "outOfMemory", "userError", "lostPod".
[[nodiscard]] std::string_view name_of(Cause cause);

/// How often a job restarts by one cause, and how long it waits before.
struct RestartRule {
  int limit = 0;
  std::chrono::seconds backoff{0};
  std::chrono::seconds most_backoff{0};
};

/// A claim that is mounted into each worker.
struct ClaimMount {
  std::string name = {};
  std::string claim = {};
  std::string path = {};
  std::string sub_path = {};
  bool read_only = false;
};

/// MPIJob's runPolicy.schedulingPolicy.
struct SchedulingPolicy {
  bool is_set = false;
  std::optional<int> min_available;
  std::string queue;
  std::string priority_class;
  Json min_resources;  ///< Null if computed.
  int timeout_seconds = 0;
};

/// Pods of one role. Container 0 is the one that counts.
struct Role {
  Json pod_template = Json::object();
  RestartPolicy restart = RestartPolicy::kNever;
  bool template_has_restart_policy = false;
};

/// Immutable once read.
struct JobSpec {
  JobKind kind = JobKind::kMpiJob;
  MpiVersion version = MpiVersion::kV2beta1;
  std::string api_version;  ///< As the object has it; for owner references.
  std::string name;
  std::string space;  ///< Its namespace.
  std::string uid;
  int64_t generation = 0;
  bool is_being_deleted = false;
  std::string managed_by;

  int workers = 0;
  int least_workers = 0;
  int most_workers = 0;
  bool has_least = false;  ///< The manifest says how few workers are enough.
  int slots = 1;
  Role worker;
  std::optional<Role> launcher;

  MpiImplementation implementation = MpiImplementation::kOpenMpi;
  bool launcher_is_worker = false;
  bool launcher_waits_for_workers = false;
  std::string ssh_mount_path;  ///< "" unless the user wants real ssh.
  CleanPods clean_pods = CleanPods::kNone;
  std::optional<int> backoff_limit;
  std::string main_container;
  SchedulingPolicy scheduling;

  std::optional<std::chrono::seconds> active_deadline;
  std::optional<std::chrono::seconds> time_to_live;
  bool suspend = false;

  std::vector<ClaimMount> claims;
  std::string sync;  ///< The folder that `corro run --sync` brings, "/workspace/NAME"; "": none.
  std::string priority_class;
  std::string queue;
  Gang gang = Gang::kOff;
  std::array<RestartRule, kCauses.size()> restart;  ///< By Cause.
  std::chrono::seconds restart_reset{600};

  [[nodiscard]] bool is_mpi() const { return kind == JobKind::kMpiJob; }
  /// Workers come and go while its ranks run: fewer than wanted are enough.
  [[nodiscard]] bool is_elastic() const { return !is_mpi() && has_least; }
  /// So many workers may ever have keys of one head.
  [[nodiscard]] int workers_with_keys() const { return is_elastic() ? most_workers : workers; }
  /// v1alpha1, v1alpha2 and v1, which came with `kubectl exec` and labels of their own.
  [[nodiscard]] bool is_old_mpi() const { return is_mpi() && version != MpiVersion::kV2beta1; }
  /// v1's launcher is a Pod, that of others a batch Job.
  [[nodiscard]] bool launcher_is_pod() const {
    return launcher.has_value() && version == MpiVersion::kV1;
  }
  /// "MPIJob" or "CorroJob".
  [[nodiscard]] std::string_view kind_name() const { return is_mpi() ? "MPIJob" : "CorroJob"; }
};

}  // namespace corro::kube
