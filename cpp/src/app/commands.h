// The commands that `corro` carries out itself.
#pragma once

#include "app/cli.h"
#include "app/program.h"

namespace corro::app {

/// Starts the job, or with --dry-run prints what would be started. Returns the exit status.
[[nodiscard]] int run_command(const launch::RunOptions& options, const Variables& environment);

/// Runs the ranks of this host for the launcher at the other end of stdin and stdout.
[[nodiscard]] int agent_command();

/// Prints what the ranks on this host are doing. Status 1 if there are none.
[[nodiscard]] int doctor_command(const Request& request);

/// Tries the front ends of the Python that ranks would have, and prints which work. Status 1 if
/// none does.
[[nodiscard]] int frameworks_command(const Variables& environment);

/// Prints the Python stacks of a running job's ranks. Status 1 if there is no such job.
[[nodiscard]] int stacks_command(const std::string& job);

/// Has a running job start table servers, or let one go, and prints what it does. Status 1 if it
/// does not, or there is no such job.
[[nodiscard]] int servers_command(const LookCommand& look);

/// Writes what a running job's ranks did in their last steps into a file. Status 1 if there is no
/// such job, or the file cannot be written.
[[nodiscard]] int trace_command(const LookCommand& look);

/// Prints where a running job is shown to browsers; or shows one that is over, until Ctrl-C. Status 2
/// if there is none that can be shown.
[[nodiscard]] int dash_command(const launch::PastJobOptions& options);

/// Prints what a running job does: as text, or as the dashboard's JSON. Status 1 if there is no such
/// job. "": the only one; several are listed.
[[nodiscard]] int status_command(const std::string& job, bool is_json,
                                 const Variables& environment);

/// The same on the whole terminal, again and again until q, a signal, or the job's end.
[[nodiscard]] int top_command(const std::string& job, const Variables& environment);

/// Checks hosts before a job, and prints what was found. Status 1 if something is wrong.
[[nodiscard]] int preflight_command(const Request& request, const Variables& environment);

}  // namespace corro::app
