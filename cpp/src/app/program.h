// What the programs of corro have in common: where they lie, how they complain, how they end.
//
// bin/corro is what users start. What it does not do itself, programs in libexec/corro do: it
// becomes one of them (subprograms.h). So who only starts ranks needs neither planner nor operator.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "diagnosis/exit_status.h"

namespace corro::app {

/// The file of this program. "" if /proc is missing.
[[nodiscard]] std::string own_path();

/// The folder of `corro`, also for a program that lies in ../libexec/corro. "" if /proc is missing.
[[nodiscard]] std::string own_directory();

/// Prints one line to stderr.
void complain(const std::string& line);

/// Complains about a command line that could not be parsed, prints the help that was asked for, or
/// calls `carry_out` with the command. Returns the exit status. `Request` has `text` and `command`.
template <typename Request, typename CarryOut>
[[nodiscard]] int answer(const Result<Request>& request, const CarryOut& carry_out) {
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  if (request->text.empty()) return carry_out(request->command);
  fmt::print("{}", request->text);
  return 0;
}

using Program = std::function<int(const std::vector<std::string>& arguments)>;

/// Calls `program` with the arguments after the program's name and returns its exit status. An
/// exception is a defect of corro: it is printed, and the status is 70.
[[nodiscard]] int run_guarded(int argc, char** argv, const Program& program);

}  // namespace corro::app
