// Notices that a scheduler has given more nodes, or started more copies, than this launcher uses.
//
// The hosts that Slurm has given are used (slurm.h). Of any other scheduler one of these holds:
//
//   its variables or its file name several hosts, or copies   refused, with what to give instead
//   they name one                                              nothing is said: it is this host
//   the job is one of its, but they name none                  one line says so, and the job runs
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/options.h"

namespace corro::launch {

struct Surplus {
  std::string who;   ///< "Slurm"
  std::string what;  ///< "4 nodes (SLURM_JOB_NUM_NODES=4)"
  /// What to give to use them: "--hostfile $PBS_NODEFILE"; "" if corro run cannot.
  std::string remedy = {};
};

/// Returns what the environment announces beyond one launcher on one node, or nothing; of Slurm's
/// nodes not if the launcher uses those (`with_slurm`). Reads no files but schedulers' lists of
/// hosts, through `read_file`. Pure otherwise.
[[nodiscard]] std::optional<Surplus> find_surplus(
    const Variables& environment, const std::function<std::string(const std::string&)>& read_file,
    bool with_slurm = false);

/// One line for a job of a scheduler of whose hosts nothing is known; "" if there is none. Pure but
/// for `read_file`.
[[nodiscard]] std::string describe_unknown_hosts(
    const Variables& environment, const std::function<std::string(const std::string&)>& read_file);

/// One line: why the launcher refuses and what to do.
[[nodiscard]] std::string refusal(const Surplus& surplus);

}  // namespace corro::launch
