// Notices that a scheduler has given more nodes, or started more copies, than this launcher uses.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/options.h"

namespace corro::launch {

struct Surplus {
  std::string who;   ///< "Slurm"
  std::string what;  ///< "4 nodes (SLURM_JOB_NUM_NODES=4)"
};

/// Returns what the environment announces beyond one launcher on one node, or nothing; of Slurm's
/// nodes not if the launcher uses those (`with_slurm`). Reads no files but the PBS node list
/// through `read_file`. Pure otherwise.
[[nodiscard]] std::optional<Surplus> find_surplus(
    const Variables& environment, const std::function<std::string(const std::string&)>& read_file,
    bool with_slurm = false);

/// One line: why the launcher refuses and what to do.
[[nodiscard]] std::string refusal(const Surplus& surplus);

}  // namespace corro::launch
