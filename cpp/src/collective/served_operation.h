// A served allreduce on one of its contributors. Aggregators may be lost at any byte, contributors
// may not: so nobody takes a result before all contributors say that they have it.
//
//   held back   kMostAhead operations before it are not over here: whether it is to be served is
//               decided once they are
//   serving     aggregators are told what comes, contributors that this one has begun; the schedule
//               runs. What it makes lies apart from an input that is in the same memory
//   voting      it is done here, or given up: an aggregator is lost, says nothing for kPatience
//               though all have begun, or another contributor has given up. All are told which
//   over        all have their results
//   alone       somebody has not, or nothing is served any more: the operation runs among
//               contributors alone, from its input, by the algorithm whose bits aggregators would
//               have given
//
// After a loss nothing is served any more, from the same operation on everywhere, without a word
// more: kMostAhead after the first one that was lost. All have the same verdict of that one, and
// none has decided on an operation as far ahead before it had that verdict.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "collective/operation/operation.h"
#include "collective/runner.h"
#include "collective/served_links.h"

namespace corro::collective {

/// How far an operation may be ahead of the oldest one that is not over.
inline constexpr uint64_t kMostAhead = 128;

/// What a lane's served operations share. Loop-confined; outlives them.
struct ServedLane {
  Links data;  ///< Contributors and aggregators, on a lane of their own.
  Links
      words;  ///< Contributors, on the lane of what is not served: so ranks that disagree are told.
  ServedLinks& aggregators;
  Duration timeout;               ///< Of operations that name none.
  uint64_t completed = 0;         ///< Operations below it are over here.
  uint64_t ends_at = UINT64_MAX;  ///< From this operation on nothing is served.
};

/// Borrows the request, as make_schedule_operation() does. `alone` starts it without aggregators.
[[nodiscard]] std::unique_ptr<Operation> make_served_operation(
    ServedLane& lane, uint64_t op, const OpRequest& request,
    std::shared_ptr<const Schedule> schedule, Algorithm folds_as,
    std::function<std::unique_ptr<Operation>()> alone);

}  // namespace corro::collective
