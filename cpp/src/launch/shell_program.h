// ShellProgram: a command of the user's that /bin/sh runs beside a job, and what it prints.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>

#include "agent/worker.h"

namespace corro::launch {

/// Loop-confined. Nobody else reaps the program.
class ShellProgram {
 public:
  /// `mask`: its signal mask.
  static Result<std::unique_ptr<ShellProgram>> start(const std::string& command,
                                                     agent::StandardInput input,
                                                     const sigset_t& mask);
  ShellProgram(const ShellProgram&) = delete;
  ShellProgram& operator=(const ShellProgram&) = delete;
  /// Kills it, with its children, unless ended() has said that it is over.
  ~ShellProgram();

  /// Its status, as waitpid() has it; none while it runs.
  [[nodiscard]] std::optional<int> ended();
  /// How one that is over has ended, as ended() says it; it is still killed with its children.
  [[nodiscard]] std::optional<int> status() const;
  /// Takes what has come, a megabyte of each stream at most, and never blocks. False once its
  /// standard output is at its end.
  bool read();
  /// The last line on its standard error that says anything; "": there is none.
  [[nodiscard]] std::string last_word() const;
  /// The descriptor of its standard input, if that is sent.
  [[nodiscard]] int in() const { return program_.in.get(); }
  [[nodiscard]] int out() const { return program_.out.get(); }

  std::string printed;  ///< On its standard output: what read() has taken, until someone clears it.

 private:
  explicit ShellProgram(agent::Worker program) : program_(std::move(program)) {}

  agent::Worker program_;
  std::string said_;  ///< On its standard error.
  bool reaped_ = false;
};

/// "it ended with status 1: its last word".
[[nodiscard]] std::string describe_end(int status, const std::string& last_word);

}  // namespace corro::launch
