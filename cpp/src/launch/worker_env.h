// The environment of each rank.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "wire/server_number.h"

namespace corro::launch {

/// Where a rank is: its number of epoch 0, or one behind these, its host's, and its slot there.
struct Seat {
  int rank = 0;
  size_t host = 0;
  int local_rank = 0;
};

/// A host of a job, and which ranks are on it.
struct JobHost {
  std::string name;  ///< As the user named it.
  bool own = true;   ///< The launcher's.
  int first_rank = 0;
  int ranks = 1;        ///< That the job begins with.
  int spare = 0;        ///< That may join later; their numbers come behind those.
  int threads = 1;      ///< OMP_NUM_THREADS unless the user set it.
  std::string address;  ///< By which the others reach it; "" in a job of one host.
  std::string id = {};  ///< CORRO_HOST_ID, where several hosts of the job are one machine.

  [[nodiscard]] int slots() const { return ranks + spare; }
};

/// What all ranks of a job share.
struct JobFacts {
  std::string job_id;
  std::string agent;      ///< Name of the agent's abstract Unix socket; of several, its beginning.
  std::string log_dir;    ///< Of rank-N.log and failure.json; may be relative.
  std::string error_dir;  ///< The same, absolute, for TORCHELASTIC_ERROR_FILE of each rank.
  int ranks = 1;
  int most = 0;                ///< Ranks that may be there at a time; 0: as many.
  int servers = 0;             ///< Table servers beside the ranks.
  bool ranks_serve = false;    ///< Each rank is a table server, too, by its number.
  int master_port = 0;         ///< Free on the first host.
  std::vector<JobHost> hosts;  ///< In the order of their ranks; at least one.

  /// Hosts with places for ranks.
  [[nodiscard]] size_t nodes() const;
  /// Ranks that may be there at a time.
  [[nodiscard]] int places() const { return std::max(ranks, most); }
  /// The same job if it began with one in each slot.
  [[nodiscard]] JobFacts full() const;
  /// The number of the host that a rank of epoch 0 is on.
  [[nodiscard]] size_t host_of(int rank) const;
  [[nodiscard]] Seat seat_of(int rank) const;
  /// Table servers that there may have been in all, lost ones among them.
  [[nodiscard]] int most_servers() const {
    return servers == 0 && !ranks_serve ? 0 : wire::kMostServers;
  }
  /// The number of the host of a table server that the job begins with: they go around the hosts
  /// without places for ranks, or around all if there are none.
  [[nodiscard]] size_t host_of_server(int server) const;
  /// The name of a host's agent: several may be on one machine.
  [[nodiscard]] std::string agent_on(size_t host) const {
    return host == 0 ? agent : agent + "-" + std::to_string(host);
  }
};

/// Applies --env to what was inherited: "K=V" sets, "K" insists that K is there.
/// INVALID_ARGUMENT names the one that is wrong.
[[nodiscard]] Result<Variables> apply_env_options(Variables inherited,
                                                  const std::vector<std::string>& options);

/// The variables that corro adds for a rank: ours and torchrun's. Never the job's secret. `base` is
/// what the user has: OMP_NUM_THREADS and Python's settings there are kept. Pure.
[[nodiscard]] Variables worker_variables(const JobFacts& job, const Seat& seat,
                                         const Variables& base);

/// The same for a table server. Pure.
[[nodiscard]] Variables server_variables(const JobFacts& job, int server, size_t host);

/// Takes the place in another job, whose rank has started this one, out of it.
void forget_place(Variables& base);

/// What of the launcher's environment is for other hosts as well: all but what belongs to a host, a
/// login or a terminal. Pure.
[[nodiscard]] Variables for_other_hosts(Variables base);

}  // namespace corro::launch
