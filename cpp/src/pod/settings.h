// What the operator tells a pod: variables of its container, which kube/reconcile/injection.cc
// sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/variables.h"
#include "secure/credentials.h"

namespace corro::pod {

/// Names one start of a launcher's command. Remote shells hand it on, and ranks of mpirun take it
/// into the name under which they meet.
inline constexpr const char* kRunVariable = "CORRO_RUN";

/// Immutable value.
struct PodSettings {
  std::string job;  ///< CORRO_JOB: the job's name.
  secure::PodIdentity
      identity;              ///< CORRO_JOB_UID, CORRO_MEMBER, CORRO_MEMBER_GENERATION, CORRO_PART.
  std::string head;          ///< CORRO_HEAD: "10.96.0.7:7077"; "" in the head itself.
  bool runs_ranks = false;   ///< CORRO_KIND is CorroJob: the head starts ranks, not mpirun.
  int slots = 1;             ///< CORRO_SLOTS: ranks of a worker.
  int workers = 0;           ///< CORRO_WORKERS: so many are waited for; 0: any number.
  int least_workers = 0;     ///< CORRO_MIN_WORKERS of an elastic job: fewer do not go on.
  int most_workers = 0;      ///< CORRO_MAX_WORKERS of it; 0: the job is not elastic.
  std::string store;         ///< CORRO_STORE: of the job's record, in the head of an elastic job.
  std::string round;         ///< CORRO_ROUND: of the job, in which all its ranks have begun anew.
  std::string sync;          ///< CORRO_SYNC: the folder that `corro run --sync` brings; "": none.
  std::string token;         ///< CORRO_TOKEN: folder of the key; secure::kTokenFolder.
  Duration head_patience{};  ///< CORRO_HEAD_PATIENCE: seconds without a head; 10 min.
  std::string termination_log;  ///< CORRO_TERMINATION_LOG: /dev/termination-log.
  std::string hostfile;         ///< CORRO_HOSTFILE: /etc/mpi/hostfile, in a launcher; "" in others.

  [[nodiscard]] bool is_launcher() const { return identity.member == "launcher"; }
  /// Workers come and go while ranks run: the head is a coordinator (elastic_job.h).
  [[nodiscard]] bool is_elastic() const { return runs_ranks && most_workers > 0; }
};

/// INVALID_ARGUMENT names the variable that is wrong or missing. Pure.
[[nodiscard]] Result<PodSettings> read_settings(const Variables& environment);

/// Leaves a line where the kubelet finds it: the operator tells people. Blocks on the file.
void write_last_word(const PodSettings& settings, const std::string& word);

/// The key that this pod proves itself with. Blocks on its file.
[[nodiscard]] Result<secure::Key> read_own_key(const PodSettings& settings);

/// The member that a host's name means: "me@mnist-worker-3.mnist.ns.svc" is "worker-3" of job
/// mnist. None if it is no host of the job's. Pure.
[[nodiscard]] std::optional<std::string> member_of_host(std::string_view job,
                                                        std::string_view host);
/// The members worker-0 to worker-(count - 1).
[[nodiscard]] std::vector<std::string> worker_names(int count);
/// The name of a member's host: "mnist-worker-3".
[[nodiscard]] std::string host_of_member(std::string_view job, std::string_view member);

}  // namespace corro::pod
