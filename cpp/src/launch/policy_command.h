// PolicyCommand: asks a program of the user's how long an elastic job waits, and who goes
// (coord/policy.h).
//
//   asked     it runs beside the job. Each question is a line of JSON on its standard input, and it
//             answers with a line of JSON on its standard output, within a second. The launcher does
//             nothing else meanwhile, so it may not take long for many questions, either
//   silent    it has ended, or has not answered, or late, or what makes no sense: it was killed, and
//             is asked no more. The standard policy holds
#pragma once

#include <signal.h>

#include <cstddef>
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
  /// without a time leaves that to `otherwise`. The reason has both. Why it is asked no more comes once, as the wait's
  /// reason.
  [[nodiscard]] coord::Wait ask(const std::string& question, const coord::Wait& otherwise);
  /// Why it is asked no more, once, if it has ended without a question; "" else. Never blocks.
  [[nodiscard]] std::string look();
  /// Which of so many sides goes, in the same way.
  [[nodiscard]] coord::Verdict ask(const std::string& question, const coord::Verdict& otherwise,
                                   size_t sides);

 private:
  PolicyCommand(std::string command, std::unique_ptr<ShellProgram> program)
      : command_(std::move(command)), program_(std::move(program)) {}
  template <typename Answer, typename Read>
  Answer ask_for(const std::string& question, const Answer& otherwise, const Read& read);
  Result<std::string> answer_to(const std::string& question);
  Result<std::string> exchange(const std::string& question);
  Status failure(const std::string& symptom);
  std::string give_up(const std::string& why);

  std::string command_;
  std::unique_ptr<ShellProgram> program_;  ///< Null: it is silent.
  /// What it has taken for its answers of late, and when that was.
  Duration taken_{};
  Time taken_at_{};
};

/// What the program says; where it says nothing, what `otherwise` does. `host_name`: of a number.
[[nodiscard]] coord::Policy asked_policy(const std::shared_ptr<PolicyCommand>& program,
                                         const coord::Policy& otherwise,
                                         const std::function<std::string(size_t host)>& host_name);

}  // namespace corro::launch
