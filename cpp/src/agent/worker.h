// One worker: a process of the user's program with its pipes.
#pragma once

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/variables.h"
#include "io/fd.h"

namespace corro::agent {

/// What a worker reads as its standard input.
enum class StandardInput : uint8_t {
  kNone,       ///< /dev/null.
  kInherited,  ///< The agent's own.
  kSent,       ///< A pipe, into which Worker::in leads.
};

struct WorkerSpec {
  std::string program;
  std::vector<std::string> arguments;
  Variables environment;
  std::string directory = {};   ///< "": the caller's.
  std::vector<int> processors;  ///< Empty: anywhere.
  StandardInput input = StandardInput::kNone;
  int call = -1;  ///< A file with the call that it carries out; -1: none.
  /// Where the launcher's own stream is a terminal, the worker gets one of this size too, so that
  /// progress bars and colours work; else a pipe.
  std::optional<winsize> out_terminal;
  std::optional<winsize> err_terminal;
};

struct Worker {
  pid_t pid = 0;
  io::Fd out;  ///< Non-blocking; the end of a pseudo terminal reads as EIO.
  io::Fd err;
  io::Fd in;      ///< Non-blocking; of StandardInput::kSent only.
  io::Fd result;  ///< Non-blocking; of one that carries out a call only.
};

/// Starts the program in a process group of its own (keys pressed at the terminal do not reach it),
/// with the original signal mask, killed by the kernel if the calling thread ends. Call from the
/// thread that lives as long as the launcher. NOT_FOUND, PERMISSION_DENIED, ... if it cannot be
/// executed. One that carries out a call finds the descriptors of that and of its result in
/// CORRO_CALL.
[[nodiscard]] Result<Worker> start_worker(const WorkerSpec& spec, const sigset_t& signal_mask);

}  // namespace corro::agent
