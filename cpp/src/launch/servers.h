// Servers: the table servers of a job, for its launcher. They are processes of the job, and no ranks:
// nobody waits for one, and the job goes on without one that ends.
//
//   not begun   the hosts are being prepared
//   serving     ranks run
//   ending      from end() on no rank runs: SIGTERM, and KILL when the grace is over
//   over        none runs, or all were killed: what cannot be killed is the fence's matter
//
// Servers go around the hosts without places for ranks, or around all where there are none, and each
// stays where it is. One that ends while ranks run is replaced: a
// second later the next number, which none has had, is started on the next host that is there, at most as many times as
// servers began with the job. What it is to keep, ranks tell it (table/service/holders.h). More are
// started, and some are told to leave, where the user asks for it. A server that leaves ends with
// status 0 once ranks have copied what it keeps, and is not replaced.
//
// Its agent says what tables it has whenever it is looked at: the last word counts, until it ends.
#pragma once

#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "base/clock.h"
#include "base/status.h"
#include "launch/worker_env.h"

namespace corro::launch {

/// Another number of table servers.
struct ServerChange {
  size_t number = 0;  ///< So many more, or of the one that is to leave.
  bool leaves = false;
  bool operator==(const ServerChange&) const = default;
};

/// Pure, but that their uuids are drawn: time is injected. Loop-confined.
class Servers {
 public:
  Servers(const JobFacts& job, const wire::Digest& digest);

  [[nodiscard]] size_t size() const { return servers_.size(); }
  [[nodiscard]] const agent::Subject& subject(size_t server) const {
    return servers_[server].about;
  }
  [[nodiscard]] size_t host_of(size_t server) const { return servers_[server].host; }
  /// The one that an agent means; none: it means a rank, or nobody.
  [[nodiscard]] std::optional<size_t> find(size_t host, const agent::Subject& about) const;
  [[nodiscard]] bool runs(size_t server) const { return servers_[server].runs; }
  [[nodiscard]] bool any_runs() const;
  /// What was seen last of the tables of one that runs.
  [[nodiscard]] const std::vector<obs::TableCounts>& tables(size_t server) const {
    return servers_[server].tables;
  }

  /// All that the job begins with are started.
  void begin();
  /// Has these tables now.
  void see(size_t server, std::vector<obs::TableCounts> tables);
  /// It has ended. False: that is known.
  bool end(size_t server);
  /// A host was lost: none is started there any more. Returns those that ran there.
  std::vector<size_t> lose_host(size_t host);
  /// One has ended that is to be replaced. False: too many were.
  bool replace(size_t server, Time now);
  /// So many more are to be started. FAILED_PRECONDITION if the job has none, or too many.
  [[nodiscard]] Status start_more(size_t count, Time now);
  /// This one is to leave. FAILED_PRECONDITION if it does not run, leaves already, or is the last one.
  [[nodiscard]] Status let_go(size_t server);
  /// The number of the next one that is to be started; it counts as running. None: not yet.
  [[nodiscard]] std::optional<size_t> start_next(Time now);
  /// The number that was lost where this one was started; none: it stands for none.
  [[nodiscard]] std::optional<size_t> replaced_by(size_t server) const {
    return servers_[server].in_place_of;
  }

  /// The job did not begin with it.
  [[nodiscard]] bool came_later(size_t server) const { return server >= begun_with_; }

  /// No rank runs any more: the signal that those that run are to get now; none: nothing is to be
  /// done. `grace`: from SIGTERM to KILL; may become shorter.
  [[nodiscard]] std::optional<int> end_all(Duration grace, Time now);
  /// When end_all() or start_next() has more to say.
  [[nodiscard]] Time wake() const;
  /// Nothing is waited for.
  [[nodiscard]] bool over() const { return killed_ || !any_runs(); }

 private:
  struct Server {
    agent::Subject about;
    size_t host = 0;
    bool runs = false;
    bool leaves = false;
    std::optional<size_t> in_place_of = {};
    std::vector<obs::TableCounts> tables = {};  ///< Only while it runs.
  };
  struct Due {
    std::optional<size_t> lost;  ///< None: it is one more.
    Time at;
  };

  void add(size_t host, std::optional<size_t> in_place_of);
  [[nodiscard]] size_t host_after(size_t host) const;
  static bool stop(Server& server);

  const wire::Digest job_;
  const bool ranks_serve_;
  const size_t begun_with_;
  const size_t most_;
  size_t replaced_ = 0;
  std::vector<bool> for_ranks_;  ///< By host: ranks are there, or may come.
  std::vector<bool> lost_hosts_;
  std::vector<Server> servers_;    ///< By number.
  std::deque<Due> due_;            ///< To be started; times ascend.
  Time asked_at_ = Time::never();  ///< To end.
  Duration grace_{};
  bool killed_ = false;
};

}  // namespace corro::launch
