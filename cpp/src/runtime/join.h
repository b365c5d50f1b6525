// Join: from the environment and options of a process to a running driver: bootstrap, mesh,
// segments, engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/env.h"
#include "base/status.h"
#include "runtime/driver.h"
#include "wire/bootstrap.h"

namespace corro::runtime {

struct JoinOptions {
  std::optional<int32_t> rank, size;  ///< Over the environment's.
  std::string job;                    ///< Over CORRO_JOB_ID.
  /// A store of the caller's (torch's), used when no agent is there.
  std::function<std::unique_ptr<wire::Bootstrap>()> make_store = {};
  std::optional<Duration> timeout = {};       ///< Over CORRO_TIMEOUT.
  std::optional<Duration> join_timeout = {};  ///< Of joining; none: the same.
  /// A newer epoch ends the joining, and later what the engine has in flight. Null: none comes.
  std::shared_ptr<EpochLink> epochs = {};
  /// Asked several times a second while ranks are waited for; true ends that with CANCELLED.
  std::function<bool()> interrupted = {};
};

/// Where this process stands among the ranks of its host and among the hosts.
struct Layout {
  int32_t rank = 0, size = 1;
  int32_t local_rank = 0, local_size = 1;
  int32_t node_rank = 0, nodes = 1;
  std::vector<int32_t> node_of = {0};  ///< Every rank's host.
};

struct Joined {
  /// In a forked child: closes every descriptor without a word to anybody.
  void abandon_in_child() const {
    driver->abandon_in_child();
    if (bootstrap != nullptr) bootstrap->abandon_in_child();
  }

  Layout layout;
  std::unique_ptr<wire::Bootstrap>
      bootstrap;  ///< Kept: the agent sees this process by its connection.
  std::unique_ptr<Driver> driver;
};

/// Blocks until every rank has joined, or the deadline is over. INVALID_ARGUMENT for a
/// contradictory environment, FAILED_PRECONDITION where several ranks have no way to find each
/// other: one line says what to do.
[[nodiscard]] Result<Joined> join_job(const Environment& environment, const JoinOptions& options);

/// Ranks sorted into hosts: pure. `hosts[r]` names rank r's host; hosts are numbered by their
/// lowest rank.
[[nodiscard]] Layout layout_of(int32_t rank, const std::vector<std::string>& hosts);

}  // namespace corro::runtime
