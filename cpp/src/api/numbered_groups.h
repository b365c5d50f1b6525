// Groups that have a number in this process, by which code finds them that has not made them: a
// plug-in of a framework, say, which knows the number from the framework's graph.
//
// Whoever has found a group holds it until it lets go. The end of a group, or of its engine, waits
// for that.
#pragma once

#include <corro/corro.h>

#include "base/status.h"

namespace corro::api {

/// One that has the number already loses it. Thread-safe, as all of this.
[[nodiscard]] Status number_group(corro_group* group, int32_t number);
/// FAILED_PRECONDITION if no group has it.
[[nodiscard]] Result<corro_group*> find_group(int32_t number);
void let_go(corro_group* group);
/// Takes the numbers of a group, or of all groups of an engine, back. Blocks while somebody holds
/// one of them.
void forget_numbers(const corro_group* group);
void forget_numbers(const corro_engine* engine);

}  // namespace corro::api
