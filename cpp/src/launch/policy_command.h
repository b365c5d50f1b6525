// PolicyCommand: asks a program of the user's how long an elastic job waits (coord/policy.h).
//
//   asked     it runs beside the job. Each question is a line of JSON on its standard input, and it
//             answers with a line of JSON on its standard output, within a second
//   silent    it has not answered, or what makes no sense: it was killed, and is asked no more. The
//             standard policy holds
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <string>

#include "coord/policy.h"
#include "launch/shell_program.h"

namespace corro::launch {

/// Loop-confined. Nobody else reaps the program.
class PolicyCommand {
 public:
  /// `command`: for /bin/sh. `mask`: its signal mask.
  static Result<std::shared_ptr<PolicyCommand>> start(const std::string& command,
                                                      const sigset_t& mask);

  /// `question`: a line of JSON, without its end. Blocks for the answer, at most a second. An answer
  /// without a time leaves that to `otherwise`. Why it is asked no more comes once, as the wait's
  /// reason.
  [[nodiscard]] coord::Wait ask(const std::string& question, const coord::Wait& otherwise);

 private:
  PolicyCommand(std::string command, std::unique_ptr<ShellProgram> program)
      : command_(std::move(command)), program_(std::move(program)) {}
  Result<std::string> exchange(const std::string& question);

  std::string command_;
  std::unique_ptr<ShellProgram> program_;  ///< Null: it is silent.
};

/// What the program says; where it says nothing, what `otherwise` does. `host_name`: of a number.
[[nodiscard]] coord::Policy asked_policy(const std::shared_ptr<PolicyCommand>& program,
                                         const coord::Policy& otherwise,
                                         std::function<std::string(size_t host)> host_name);

}  // namespace corro::launch
