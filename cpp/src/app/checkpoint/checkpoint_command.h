// What `corro checkpoint` prints.
#pragma once

#include "app/checkpoint_options.h"

namespace corro::app {

/// Carries the command out: prints to stdout, a bar of `verify` to a terminal on stderr. Returns the
/// exit status: 1 if a checkpoint that was read is damaged, 2 if there is none. Blocks.
[[nodiscard]] int checkpoint_command(const CheckpointCommand& command);

}  // namespace corro::app
