// Environment: every variable that corro reads, read once, as values. Table for users:
// docs/environment.md.
//
//   CORRO_ASSIGN(const Environment environment, read_environment());
//   options.rank = environment.rank.value_or(0);
//
// Nothing else in corro calls getenv(). Precedence: argument > file > environment > default.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/interface_rule.h"
#include "base/status.h"

namespace corro {

/// Immutable value. Empty or nullopt: not set.
struct Environment {
  /// Who started this process: "corro", "torchrun", "Open MPI", "PMI", "Slurm", or "" (nobody: a
  /// world of one). Rank and size, and all that is known of their layout, come from this one
  /// launcher's variables.
  std::string launcher;
  std::optional<int32_t>
      rank;  ///< CORRO_RANK: this process's number in the job, from 0. Set together with size.
  std::optional<int32_t> size;        ///< CORRO_SIZE: processes in the job.
  std::optional<int32_t> local_rank;  ///< CORRO_LOCAL_RANK: this process's number on its host.
  std::optional<int32_t> local_size;  ///< CORRO_LOCAL_SIZE: processes of the job on this host.
  std::optional<int32_t> node_rank;   ///< CORRO_NODE_RANK: this host's number in the job.
  std::optional<int32_t> nodes;       ///< CORRO_NODES: hosts in the job.
  std::string job_id;    ///< CORRO_JOB_ID: names the job; else what the launcher calls it.
  std::string agent;     ///< CORRO_AGENT: abstract Unix socket of the agent on this host.
  bool elastic = false;  ///< CORRO_ELASTIC=1: ranks come and go, in epochs.
  std::string
      member;  ///< CORRO_MEMBER_UUID: this process in its job; in an elastic one its agent tells
               ///< it of epochs by that.
  bool joins = false;   ///< CORRO_JOINS=1: it comes in the middle of that job, and waits for an
                        ///< epoch.
  int32_t servers = 0;  ///< CORRO_SERVERS: table servers of the job; 0: none.
  bool ranks_serve = false;       ///< CORRO_SERVERS=ranks: each rank is one of them, by its number.
  std::optional<int32_t> server;  ///< CORRO_SERVER: this process is that one of them, and no rank.
  std::string pod_job;            ///< CORRO_JOB_UID: the job of this pod, whose agent lets ranks of
                                  ///< mpirun meet.
  std::string pod_head;           ///< CORRO_HEAD: the address of that job's head.
  std::string secret_file;        ///< CORRO_SECRET_FILE: 0600 file with the job's secret in 64
                                  ///< hexadecimal digits.
  std::string user_secret_file;   ///< corro/secret in XDG_CONFIG_HOME, or in .config of HOME: for
                                  ///< ranks on several hosts that nobody gave a secret.
  std::string bootstrap_directory;  ///< CORRO_BOOTSTRAP=dir:PATH: shared directory through which
                                    ///< ranks meet.
  /// CORRO_BOOTSTRAP=tcp:HOST:PORT: rank 0 is there, and listens. Else the host on which mpirun
  /// runs (OMPI_MCA_orte_hnp_uri, PMIX_NAMESPACE), or the first of a step of Slurm
  /// (SLURM_STEP_NODELIST): all its addresses, or its name.
  std::vector<std::string> meeting_hosts;
  std::string master_address;            ///< MASTER_ADDR: the host of torchrun's store.
  std::optional<uint16_t> meeting_port;  ///< Of CORRO_BOOTSTRAP=tcp.
  std::string listen;                    ///< CORRO_LISTEN: address for TCP; default 127.0.0.1.
  /// GLOO_SOCKET_IFNAME, HOROVOD_GLOO_IFACE or NCCL_SOCKET_IFNAME: the interfaces by which hosts
  /// reach each other; any if none is set.
  std::optional<InterfaceRule> interfaces;
  std::string
      host_id;  ///< CORRO_HOST_ID: says which ranks share a host (tests); default: found out.
  bool local_tcp = false;      ///< CORRO_TRANSPORT=tcp: ranks of one host use TCP; default shm.
  bool deterministic = false;  ///< CORRO_DETERMINISTIC=1: repeated runs agree bit for bit.
  bool commit =
      false;  ///< CORRO_COMMIT=1: a collective succeeds on all ranks that live or on none.
  std::optional<Duration> timeout;  ///< CORRO_TIMEOUT: seconds; the deadline of every wait.
  std::optional<Duration>
      spin;  ///< CORRO_SPIN: microseconds a waiting rank spins before it sleeps.
  std::optional<uint64_t>
      fusion_bytes;        ///< CORRO_FUSION_BYTES: a bucket of small tensors is no larger.
  std::string algorithms;  ///< CORRO_ALGORITHMS: rules; collective/schedule/algorithm.h reads them.
  std::optional<int32_t>
      scheduler_nodes;  ///< SLURM_JOB_NUM_NODES: hosts that the batch system gave to this job.
};

/// Whether all ranks are on one host; nullopt if the launcher does not say it, or the job is elastic
/// and hosts may come.
[[nodiscard]] std::optional<bool> on_one_host(const Environment& environment);

/// What has to be the same on all ranks, as text: "CORRO_TRANSPORT=shm CORRO_COMMIT=0" and so on,
/// defaults included.
[[nodiscard]] std::string common_settings(const Environment& environment);

/// Looks a variable up; nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

/// Reads the process's environment. INVALID_ARGUMENT in one line that names variable and value.
[[nodiscard]] Result<Environment> read_environment();
/// Reads any environment; for tests and launchers.
[[nodiscard]] Result<Environment> read_environment(const EnvironmentLookup& lookup);

}  // namespace corro
