// The standalone coordinator: `corro run` to which agents dial in, and of which several may wait to
// take over.
//
//   standing by  another one leads, as the store says. When that ends, this one does
//   gathering    a job that has not begun: until agents offer enough slots
//   leading      the launcher runs the job (launch/launcher.h), from its beginning, or from where
//                another coordinator has left it
//   over         the job has ended, and the record says how
//
// Who loses its lead starts itself once more, and stands by.
#pragma once

#include <string>
#include <vector>

#include "base/variables.h"
#include "launch/options.h"

namespace corro::coordinator {

struct CoordinatorOptions {
  std::string store;   ///< As open_store() reads it.
  std::string listen;  ///< "10.0.0.1:7078"; port 0 takes a free one.
  launch::RunOptions run;
  std::vector<std::string> words;  ///< Of its command line, to start itself once more.
  std::string program;             ///< The path of this one.
  std::string own_directory;       ///< That of the program `corro`.
  std::string version;
};

/// Runs the job to its end; returns the job's exit status, or 2 if it cannot begin. The calling
/// process has no threads, and runs nothing else.
[[nodiscard]] int run_coordinator(const CoordinatorOptions& options, const Variables& environment);

}  // namespace corro::coordinator
