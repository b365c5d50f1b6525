// What the user asked for on the command line of `corro run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/variables.h"
#include "screen/show.h"

namespace corro::launch {

/// Unless --elastic-timeout says otherwise.
inline constexpr Duration kElasticTimeout = std::chrono::minutes(10);
/// CORRO_ELASTIC_TIMEOUT of ranks that wait without an end.
inline constexpr Duration kEndless = std::chrono::hours(24 * 365 * 10);
/// CORRO_TIMEOUT of the ranks of elastic jobs, where it is not set. As torch's.
inline constexpr Duration kElasticDeadline = std::chrono::minutes(30);

enum class Bind : uint8_t { kAuto, kNone, kCore };

/// An argument of the program that is spelt like an option of `corro run`.
struct MisplacedOption {
  std::string name;       ///< As it was written: "-np".
  std::string words;      ///< With its value: "-np 2".
  bool is_ranks = false;  ///< It gives the number of ranks.
};

struct RunOptions {
  std::string command_name = "run";  ///< Of corro, for messages.
  std::optional<int> ranks;          ///< -n, -np, --nproc-per-node; none: choose_ranks().
  bool module = false;               ///< -m: the program is a Python module.
  std::vector<std::string> command;  ///< The program and its arguments.
  std::vector<MisplacedOption> misplaced;
  std::vector<std::string> env;  ///< "K=V" or "K" each.
  std::string log_dir;           ///< "": corro-runs/<time>-<name>.
  std::string output_dir;        ///< For rank.N/stdout and stderr; "": none.
  std::string events;            ///< File for what happens; "": none.
  std::string dashboard;         ///< --dashboard: where the job is shown to browsers; "": nowhere.
  screen::Show show;
  Bind bind = Bind::kAuto;
  std::optional<int> least;                 ///< --min-np; none: every rank is needed.
  std::optional<int> most;                  ///< --max-np; none: nobody joins.
  std::optional<Duration> elastic_timeout;  ///< For enough ranks; none: kElasticTimeout.
  /// Ranks wait for hosts without an end while there are too few: somebody else brings them.
  bool waits_for_hosts = false;
  std::string policy;                    ///< --policy: a command that is asked; "": none.
  std::optional<Duration> replace_wait;  ///< For a replacement after a loss; none: no time.
  std::optional<Duration> hang_timeout;  ///< For a rank that others wait for; none: for ever.
  std::optional<int> reset_limit;        ///< Epochs after the first one; none: any number.
  std::optional<std::pair<Duration, Duration>> back_off;  ///< Of slots that fail: first and last.
  std::optional<Duration> timeout;
  std::optional<Duration> long_wait;  ///< --long-wait; zero: nobody is named.
  std::string hosts;                  ///< -H.
  std::string discovery;              ///< --host-discovery: a command that prints them; "": none.
  std::string hostfile;               ///< --hostfile.
  std::string rsh;                    ///< --rsh; "": ssh.
  std::string network;                ///< --network; "": any.
  std::string sync;                   ///< --sync: folder to bring to the other hosts; "": none.
  int servers = 0;                    ///< --servers: table servers beside the ranks.
  bool ranks_serve = false;           ///< --servers ranks: each rank is one, too; none beside them.
  size_t fan_out = 32;  ///< --fan-out: agents that the launcher, and each agent, starts.
  int call = -1;        ///< --corro-call: a socket to corro.run(); -1: none.
  bool allow_single_node = false;
  bool dry_run = false;
  bool verbose = false;
  bool quiet = false;

  /// Ranks may come and go.
  [[nodiscard]] bool elastic() const { return least || most || !discovery.empty(); }
};

}  // namespace corro::launch
