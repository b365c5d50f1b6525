// Operations whose outputs are made when it is known how many rows come: corro_op with `allocate`.
//
// Two stages, each named and of all operations that are submitted together. In the first the ranks
// tell each other their numbers of rows, under the operation's name and ".sizes". When it is over the
// thread that moves the engine has the outputs made and submits the second, which is the operations
// themselves. The caller's work is done when that is, or when the first has failed.
#pragma once

#include <corro/corro.h>

#include <memory>

#include "base/status.h"
#include "runtime/work.h"

namespace corro::api {

/// Starts them. `requests`: without outputs and counts.
[[nodiscard]] Result<std::shared_ptr<runtime::WorkState>> submit_sized(
    corro_group* group, const corro_op* ops, std::vector<collective::OpRequest> requests);
/// The same; the calling thread moves them as long as that need not sleep.
[[nodiscard]] Result<std::shared_ptr<runtime::WorkState>> run_sized(
    corro_group* group, const corro_op* ops, std::vector<collective::OpRequest> requests);

}  // namespace corro::api
