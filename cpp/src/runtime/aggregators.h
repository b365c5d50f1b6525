// Aggregators: how a rank that joins its job reaches the servers that may take part in large
// allreduces, and how all ranks agree on which of them do.
//
//   Reached reached = reach_aggregators(environment, epoch, rank, size, deadline);
//   CORRO_ASSIGN(auto links, agree_on_aggregators(driver, group, std::move(reached), ..., deadline));
//
// A server is of use where no rank is: on a rank's host it would share that one's link. It is taken
// there all the same if CORRO_ALGORITHMS says "served".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/env.h"
#include "collective/schedule/selection.h"
#include "collective/served_links.h"
#include "runtime/driver.h"
#include "transport/stream.h"

namespace corro::runtime {

/// What ranks tell each other of a server; of what they say the least counts.
enum class Reach : int32_t {
  kNone = 0,      ///< It is gone, or it cannot be reached from here.
  kSameHost = 1,  ///< As another one before it, or as this rank.
  kOtherHost = 2,
};

struct ReachedAggregators {
  std::vector<std::unique_ptr<transport::Stream>> streams;  ///< By server; null for kNone.
  std::vector<Reach> reach;                                 ///< The same.
};

/// Connects to the job's servers, and does without those that do not answer. Blocks, at most some
/// seconds. Nothing in a job that has none.
[[nodiscard]] ReachedAggregators reach_aggregators(const Environment& environment, int32_t rank,
                                                   int32_t size, Time deadline);

/// Connections to those that every rank has reached and that are of use; null if there are none.
/// All ranks of the group call it, and get the same servers. Blocks.
[[nodiscard]] Result<std::unique_ptr<collective::ServedLinks>> agree_on_aggregators(
    Driver& driver, Group& group, ReachedAggregators reached,
    const collective::SelectionTable& table, uint32_t epoch, Time deadline);

}  // namespace corro::runtime
