// Says in words what a flight recorder shows.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "obs/flight_recorder.h"

namespace corro::diagnosis {

/// The operation that says most about a process: the oldest one that is going on, else the newest.
/// Of the firings of a plan the one that a thread has says most, but less than an operation: that may
/// be its thread's; transfers wait while it computes. Null if there is none. Borrowed from the
/// snapshot.
[[nodiscard]] const obs::OpSnapshot* telling_operation(const obs::ProcessSnapshot& process);

/// The newest operation, or null. Firings that are none do not count: they fail with their plan, and
/// wait for nobody.
[[nodiscard]] const obs::OpSnapshot* last_operation(const obs::ProcessSnapshot& process);

/// "allreduce #16 'layer1' (f32 x 1000)": the sixteenth of its group, as in errors; "service F0,
/// micro-batch 3 (lane rank0)"; "send 'activation to rank 1', micro-batch 3 (u8 x 4096)".
[[nodiscard]] std::string describe_operation(const obs::OpSnapshot& op);

/// "in allreduce #16 (f32 x 1000), phase transfer for 1.2 s, waiting for rank 2"; "last operation
/// was barrier #3, done 0.5 s before"; "no operation yet".
[[nodiscard]] std::string describe_progress(const obs::ProcessSnapshot& process, Time now);

/// Writes a time span as "0.5 s", "12 s", "3 min".
[[nodiscard]] std::string format_span(Duration span);

}  // namespace corro::diagnosis
