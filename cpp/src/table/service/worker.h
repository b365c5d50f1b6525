// TableWorker: what a rank says to table servers, and when a call of its user is over. Without
// sockets, threads and clock.
//
//   CORRO_TRY(worker.start_push(table, ids, gradients));
//   while (worker.proceed(); !worker.over()) ...;  // Questions go out, answers and news come in.
//   CORRO_TRY(worker.result());
//
// A call is a series of rounds. A round asks servers, each for what it has, and is over when all
// have answered:
//
//   open   OPEN
//   pull   PULL
//   push   rank 0 alone, if rows have to be copied: EXPORT, IMPORT, and so on while there are more;
//          then HOLDS and PUSH together (ranks but 0: PUSH)
//
// When a server is lost, here or as another rank says, the round is asked once more of those that
// are left: a server that has answered before answers alike. The same where HOLDS comes in a round
// of PUSH: the push has keys for other servers then. A round that copies is not asked again: the push
// goes on without it, and the next one tries anew.
//
// Why no row is lost or counted twice by a copy. Rank 0 copies before its push of step k+1, when
// step k was answered. So all holders have taken step k, and none can take k+1: their rows stand
// still. It tells the next version of the holders before it pushes, its push is of that version,
// and a server takes a step of one version from all ranks only (served_table.h): no rank can be
// through with step k+1 without having said it to all holders of the version. Who holds a shard no
// more keeps its rows until then, for ranks that have not heard of it and pull.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "table/service/questions.h"
#include "table/service/split.h"
#include "table/service/tables.h"

namespace corro::table {

/// A worker's connections, by the number of the server.
class Links {
 public:
  virtual ~Links() = default;
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// There is one more server, or a server whose number is beyond the greatest so far.
  virtual void add(uint32_t server, const std::string& address) = 0;
  virtual Questions& questions(uint32_t server) = 0;
  /// Nobody waits for its answers any more.
  virtual void forget(uint32_t server) = 0;
  /// The address of a server that was started after the job began. None: there is none yet. Fails
  /// if there never will be one of this number. Does not wait.
  virtual Result<std::optional<std::string>> find(uint32_t server) = 0;
};

/// Loop-confined. One call at a time.
class TableWorker {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t ranks = 1;
    std::vector<std::string> servers;      ///< That the job begins with; there are links to them.
    Duration patience{};                   ///< That servers have with other ranks.
    size_t shards = kShards;               ///< As of Holders.
    size_t move_bytes = size_t{1} << 20U;  ///< About so many are copied between two pushes.
  };
  /// `links` is borrowed.
  TableWorker(const Options& options, Links& links);

  /// As Tables says. The call is begun if there is no failure, and may be over at once.
  [[nodiscard]] Result<TableNumber> start_open(const TableSpec& spec, uint32_t replicas);
  [[nodiscard]] Status start_pull(TableNumber table, std::span<const uint64_t> ids);
  [[nodiscard]] Status start_push(TableNumber table, std::span<const uint64_t> ids,
                                  std::span<const float> gradients);
  /// Does what follows from answers and news.
  void proceed();
  [[nodiscard]] bool over() const { return phase_ == Phase::kIdle; }
  /// Of the last call.
  [[nodiscard]] const Status& result() const { return result_; }
  /// The rows of a pull that is over, for the ids in their order: [ids, dim].
  void copy_rows(std::span<float> values) const;
  /// Ends the call with this failure, whatever servers answer.
  void stop(Status why) { stopped_ = std::move(why); }
  /// "table t: push 3".
  [[nodiscard]] const std::string& describe_call() const { return what_; }

  /// What a server says unasked.
  void hear(uint32_t server, const Header& header, BytesView body);
  /// A server cannot be reached: all ranks leave it.
  void lose(uint32_t server, const std::string& why);
  [[nodiscard]] bool uses(uint32_t server) const { return !lost_[server]; }

  [[nodiscard]] Status set_lr(TableNumber table, float lr);
  [[nodiscard]] uint64_t steps(TableNumber table) const { return tables_.at(table).steps; }
  /// So many servers that are not lost have each row, as far as this rank knows.
  [[nodiscard]] uint32_t copies(TableNumber table) const {
    return static_cast<uint32_t>(tables_.at(table).holders.least_copies(lost_));
  }
  [[nodiscard]] const Holders& holders(TableNumber table) const {
    return tables_.at(table).holders;
  }

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kPull, kExport, kImport, kPush };
  struct Opened {
    Open asked;
    Holders holders;
    uint64_t steps = 0;
    Status broken = {};                      ///< Why it is of no use any more.
    bool moves = false;                      ///< Rows can be copied.
    bool settled = true;                     ///< All owners hold what they own.
    size_t shards_at_once = 16;              ///< In a move.
    std::map<uint32_t, uint64_t> told = {};  ///< By server: the version that it has heard of.
    [[nodiscard]] const TableSpec& spec() const { return asked.spec; }
  };

  // Rounds.
  void begin(TableNumber table, Phase phase, const std::string& call);
  void ask();
  void next_round();
  void forget_all();
  void finish(const Status& status);
  Answer counted(Answer answer);
  [[nodiscard]] Status check_rows(const Opened& opened) const;
  void ask_open();
  void finish_open();
  void ask_pull();
  void ask_rows(uint32_t server, const ServerKeys& wanted);
  void ask_push();
  void tell_gradients(uint32_t server, const ServerKeys& mine);

  // Copying (worker_moves.cc).
  bool choose_move();
  void look_for_server();
  void ask_export();
  void ask_import();
  void finish_move();
  void tell_holds(uint32_t server);
  [[nodiscard]] Bytes holds_body(const Opened& opened) const;
  void hear_holds(TableNumber table, const Holds& holds);

  // Servers.
  void add(uint32_t server, const std::string& address);
  void grow(size_t servers);

  const Options options_;
  Links& links_;
  std::vector<bool> lost_;              ///< By server: it is not used, or not yet.
  std::vector<std::string> why_;        ///< By server: why it is lost for ever.
  std::vector<std::string> addresses_;  ///< By server; of those that were added.
  std::vector<Opened> tables_;          ///< By number.

  // The call that is under way, or the last one.
  Phase phase_ = Phase::kIdle;
  TableNumber table_ = 0;
  std::string what_;
  DistinctKeys keys_;
  std::vector<float> rows_;             ///< [keys, dim]: what is pulled, or the sums to be pushed.
  std::map<uint32_t, uint64_t> taken_;  ///< By server: steps, as it answered OPEN.
  Move move_;
  Export wanted_;
  Bytes packed_;
  size_t move_bytes_ = 0;
  size_t unanswered_ = 0;
  bool again_ = false;  ///< The round is to be asked again.
  Status failure_;      ///< The first one that a server answered.
  Status stopped_;
  Status result_;
};

}  // namespace corro::table
