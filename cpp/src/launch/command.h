// What to execute: the program's path and its arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"

namespace corro::launch {

/// What resolve_command() wants to know about files; injected so that it is pure.
struct FileFacts {
  std::string directory = ".";  ///< Where relative paths start.
  std::function<bool(const std::string&)> exists;
  std::function<bool(const std::string&)> executable;  ///< A regular file with permission to run.
  /// Whether both paths lead to the same file or directory.
  std::function<bool(const std::string&, const std::string&)> same;
};
[[nodiscard]] FileFacts real_files();

/// The interpreter of the current environment: $VIRTUAL_ENV's, else the one beside this program,
/// else python3 on PATH. NOT_FOUND if there is none.
[[nodiscard]] Result<std::string> find_python(const Variables& environment,
                                              const std::string& own_directory,
                                              const FileFacts& files);

struct Command {
  std::string program;                 ///< Path to execute; "": that which the host's agent knows.
  std::vector<std::string> arguments;  ///< argv, the program's name first.
  std::string name;                    ///< "train" for train.py: names the log directory.
  bool python = false;                 ///< The interpreter was put in front.
  std::string script = {};             ///< That it reads; "": none.
  /// The one that would have been put in front, if the user gave one of another place; else "".
  std::string other_python;
};

/// A .py file (and -m MODULE) gets the interpreter of the current environment with -u:
/// $VIRTUAL_ENV's, else the one beside this program (`own_directory`), else python3 on PATH. Any
/// other program is looked up on PATH. NOT_FOUND, PERMISSION_DENIED and, for a file given as a
/// module, INVALID_ARGUMENT in one line.
[[nodiscard]] Result<Command> resolve_command(const RunOptions& options,
                                              const Variables& environment,
                                              const std::string& own_directory,
                                              const FileFacts& files);

}  // namespace corro::launch
