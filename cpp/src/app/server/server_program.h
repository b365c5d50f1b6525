// A table server as a process: `corro server`, which agents start beside the ranks of a job.
//
//   joining    finds its agent, and which server of which job it is
//   serving    listens, says where, and serves until SIGTERM, with which it ends once no rank runs
#pragma once

#include <functional>

#include "base/env.h"
#include "base/status.h"
#include "io/fd.h"
#include "obs/table_recorder.h"
#include "wire/server_bootstrap.h"

namespace corro::app {

class ServerProgram {
 public:
  /// Serves whoever connects until `stop` is readable; returns the exit status. `listener`: of TCP,
  /// non-blocking, ranks know its address from now on.
  /// `recorder`: the agent reads what is in it.
  using Serve = std::function<Result<int>(const wire::ServerPlace& place, io::Fd listener,
                                          const io::Fd& stop, obs::TableRecorder& recorder)>;

  /// `stop`: readable once the server is asked to end.
  ServerProgram(Environment environment, io::Fd stop, Serve serve)
      : environment_(std::move(environment)), stop_(std::move(stop)), serve_(std::move(serve)) {}

  /// Blocks to the end of it, and returns the exit status: that of `serve`, 0 if it was asked to end
  /// before, 2 where nobody has started it as a server, 1 after one line of what is wrong.
  [[nodiscard]] int run();

 private:
  [[nodiscard]] Result<int> join_and_serve();
  [[nodiscard]] bool stopped() const;

  const Environment environment_;
  const io::Fd stop_;
  const Serve serve_;
};

/// Keeps the tables of the job's ranks, and takes part in their allreduces (aggregator_thread.h).
[[nodiscard]] Result<int> serve_tables(const wire::ServerPlace& place, io::Fd listener,
                                       const io::Fd& stop, obs::TableRecorder& recorder);

/// Blocks SIGTERM, and returns a descriptor that is readable once it has come. Before any thread.
[[nodiscard]] io::Fd stop_on_sigterm();

}  // namespace corro::app
