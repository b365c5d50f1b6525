// Gathering: agents that dial a coordinator whose job has not begun, until they offer enough slots.
//
// None is kept: each is told that others are waited for, and dials again a second later. So who
// goes away is not counted, and nothing has to be said to those who wait.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "launch/lead.h"
#include "launch/reception.h"

namespace corro::coordinator {

struct GatheringOptions {
  int slots = 1;       ///< So many are waited for.
  wire::Digest job{};  ///< Agents with ranks of another one are not counted.
  std::optional<Duration> patience = std::nullopt;  ///< None: for ever.
  std::vector<std::string> expected =
      {};  ///< Hosts of which people are told when they do not come.
};

/// For people: who has not come, by name. Pure.
[[nodiscard]] std::string describe_absent(const std::vector<std::string>& names);

/// Hosts in the order in which they came. Blocks; `loop` outlives the reception's next watch().
/// ABORTED: the lead is lost; DEADLINE_EXCEEDED after the patience; CANCELLED by SIGINT or SIGTERM,
/// which is put into `asked`.
[[nodiscard]] Result<std::vector<launch::HostSlots>> gather(launch::Reception& reception,
                                                            launch::Lead& lead, io::Loop& loop,
                                                            const GatheringOptions& options,
                                                            std::optional<int>& asked);

}  // namespace corro::coordinator
