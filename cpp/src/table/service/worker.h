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
//   pull   PULL, if the rows were not asked for ahead, or are of too early a step
//   push   rank 0 alone, if rows have to be copied: the pushes before are answered; EXPORT, IMPORT,
//          and so on while there are more; then HOLDS and PUSH together (ranks but 0: PUSH)
//   wait   nothing: until all pushes are answered
//   save   rank 0: the pushes before are answered; SAVE. The snapshot is written while other calls
//          go on; servers say SAVED
//   load   rank 0: LOAD, and once all servers have their rows ADOPT
//
// Two things are under way between calls, too (under_way.h): pushes, up to the table's staleness of
// them, and rows that were asked for ahead. Whoever has a TableWorker calls proceed() whenever
// something has arrived. A push that fails makes its table useless: each later call says why.
//
// When a server is lost, here or as another rank says, all that is not answered is asked once more
// of those that are left: a server that has answered before answers alike. The same where HOLDS
// comes for a table with pushes under way: they have keys for other servers then. A round that
// copies is not asked again: the push goes on without it, and the next one tries anew.
//
// Rows that were asked for ahead of a push are of the step before it. So the push is followed by the
// same PULL, once more, for what its step changes of them (messages.h: since, at_least): a server
// answers both together, and most rows are not sent again.
//
// Why no row is lost or counted twice by a copy. Rank 0 copies before its push of step k+1, when
// step k was answered. So all holders have taken step k, and none can take k+1: their rows stand
// still. It tells the next version of the holders before it pushes, its push is of that version,
// and a server takes a step of one version from all ranks only (served_table.h): no rank can be
// through with step k+1 without having said it to all holders of the version. Who holds a shard no
// more keeps its rows until then, for ranks that have not heard of it and pull.
//
// A server that is asked to leave says LEAVING. It owns nothing any more: its rows are copied as
// those of a lost one, with itself as a source. Once all owners have what they own, the next version
// is without it; and after a push of that version, for which all ranks have to know it, RELEASE.
//
// A snapshot is of the rows after the step that the table has taken when rank 0 saves it: none can
// be taken before rank 0 pushes again. While it is written no rows are copied.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "table/service/questions.h"
#include "table/service/snapshot_messages.h"
#include "table/service/split.h"
#include "table/service/tables.h"
#include "table/service/under_way.h"

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
  /// As Tables::prefetch(). Does not begin a call.
  [[nodiscard]] Status prefetch(TableNumber table, std::span<const uint64_t> ids, size_t most);
  [[nodiscard]] Status start_wait(TableNumber table);
  /// On rank 0; other ranks have nothing to do. Begins a snapshot after the pushes of this rank. None
  /// is being written.
  [[nodiscard]] Status start_save(TableNumber table, const CheckpointPlace& place);
  /// How a snapshot of a table alone is written.
  struct SaveAlone {
    std::string folder;
    uint64_t attempt = 0;                       ///< Its low 16 bits are 0.
    bool counts = false;                        ///< A delta may build on it.
    std::optional<checkpoint::Base> base = {};  ///< It is a delta on that one.
  };
  /// The same for a snapshot of the table alone, of the step that the table has taken.
  [[nodiscard]] Status start_save_alone(TableNumber table, const SaveAlone& how);
  /// Is over once no snapshot of the table is being written.
  void start_wait_for_save(TableNumber table);
  /// On rank 0, while no other rank uses the table, nor has a push under way: servers read their rows
  /// from a checkpoint. Nothing has changed yet.
  [[nodiscard]] Status start_load(TableNumber table, const std::string& folder, uint64_t step,
                                  bool weights_only);
  /// Of the checkpoint that was loaded last.
  [[nodiscard]] uint64_t loaded_steps(TableNumber table) const { return tables_.at(table).loaded; }
  /// Behind that: servers, and this rank, go on with what was loaded. The others say adopt_steps().
  void start_adopt(TableNumber table);
  void adopt_steps(TableNumber table, uint64_t steps);
  /// A snapshot whose parts are all written, or that cannot be finished.
  struct Written {
    TableNumber table = 0;
    uint64_t step = 0;
    uint64_t attempt = 0;
    uint32_t parts = 0;
    Status status;
  };
  /// The next one that nobody has taken.
  [[nodiscard]] std::optional<Written> take_written();
  /// What people should know, a line each, since the last call.
  [[nodiscard]] std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  /// Does what follows from answers and news.
  void proceed();
  [[nodiscard]] bool over() const { return phase_ == Phase::kIdle; }
  /// Of the last call.
  [[nodiscard]] const Status& result() const { return result_; }
  /// The rows of a pull that is over, for the ids in their order: [ids, dim].
  void copy_rows(std::span<float> values) const { pulled_->copy_rows(values); }
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
  /// Of the table, as this rank knows: its pushes that are answered.
  [[nodiscard]] uint64_t steps(TableNumber table) const { return tables_.at(table).steps; }
  /// Those, and its pushes that are under way.
  [[nodiscard]] uint64_t pushed(TableNumber table) const { return tables_.at(table).pushed(); }
  [[nodiscard]] const TableSpec& spec(TableNumber table) const { return tables_.at(table).spec(); }
  /// So many servers that are not lost have each row, as far as this rank knows.
  [[nodiscard]] uint32_t copies(TableNumber table) const {
    return static_cast<uint32_t>(tables_.at(table).holders.least_copies(lost_));
  }
  [[nodiscard]] const Holders& holders(TableNumber table) const {
    return tables_.at(table).holders;
  }

 private:
  enum class Phase : uint8_t {
    kIdle,
    kOpen,
    kPull,
    kSettle,
    kExport,
    kImport,
    kPush,
    kWait,
    kSave,
    kWaitForSave,
    kLoad,
    kAdopt
  };
  /// A snapshot that is being written, or was.
  struct Saving {
    Written written;
    std::set<uint32_t> writers;  ///< Servers that have not said SAVED.
    [[nodiscard]] bool over() const { return writers.empty() || !written.status.ok(); }
  };
  struct Opened {
    Open asked;
    Holders holders;
    uint64_t steps = 0;
    std::deque<PushUnderWay> pushes = {};                ///< Not answered by all; steps ascend.
    std::deque<std::shared_ptr<Fetch>> prefetched = {};  ///< In the order of their calls.
    Status broken = {};                                  ///< Why it is of no use any more.
    bool moves = false;                                  ///< Rows can be copied.
    bool settled = true;                                 ///< All owners hold what they own.
    size_t shards_at_once = 16;                          ///< In a move.
    std::map<uint32_t, uint64_t> told = {};  ///< By server: the version that it has heard of.
    uint64_t known = 0;                      ///< A push of this version was answered: all know it.
    std::optional<Saving> saving = {};
    Load load = {};       ///< The last one.
    uint64_t loaded = 0;  ///< Steps of the rows that servers have loaded.
    [[nodiscard]] const TableSpec& spec() const { return asked.spec; }
    /// Pushes of this rank so far.
    [[nodiscard]] uint64_t pushed() const { return steps + pushes.size(); }
    /// Rows of this step are new enough.
    [[nodiscard]] uint64_t least_step() const;
  };

  // Rounds.
  void begin(TableNumber table, Phase phase, const std::string& call);
  void overcome();
  void ask();
  bool next_round();
  bool next_after_answers();
  bool next_after_pushes();
  void finish(const Status& status);
  Answer counted(Answer answer);
  [[nodiscard]] Status check_rows(const Opened& opened) const;
  void ask_open();
  void finish_open();
  void begin_push();

  // What is under way between calls (worker_under_way.cc).
  void forget_all();
  void ask_again();
  void ask_again(TableNumber table);
  void ask_fetch(TableNumber table, const std::shared_ptr<Fetch>& fetch, uint64_t at_least);
  void ask_rows(TableNumber table, uint32_t server, const std::shared_ptr<Fetch>& fetch,
                const ServerKeys& wanted);
  void go_on_pulling();
  void refresh_next(TableNumber table);
  void say_push(TableNumber table, PushUnderWay& push);
  void say_gradients(TableNumber table, uint32_t server, PushUnderWay& push,
                     const ServerKeys& mine);
  void hear_pushed(TableNumber table, uint64_t step, const Status& status);
  void fail(Opened& opened, const Status& why);

  // Copying (worker_moves.cc).
  bool choose_move();
  void look_for_server();
  void ask_export();
  void ask_import();
  void finish_move();
  void tell_holds(TableNumber table, uint32_t server);
  [[nodiscard]] Bytes holds_body(const Opened& opened) const;
  void hear_holds(TableNumber table, const Holds& holds);

  // Snapshots (worker_snapshots.cc).
  void ask_save();
  void hear_saved(uint32_t server, TableNumber table, const Saved& saved);
  void give_up_parts(uint32_t server);
  void ask_load();
  void ask_adopt();
  [[nodiscard]] bool is_writing(TableNumber table) const;

  // Servers.
  void hear_leaving(uint32_t server);
  void find_unneeded();
  void release_servers();
  void note_uncopied(const std::string& why);
  [[nodiscard]] Holders::Absent absent() const { return {lost_, leaving_}; }
  void add(uint32_t server, const std::string& address);
  void grow(size_t servers);

  const Options options_;
  Links& links_;
  std::vector<bool> lost_;              ///< By server: it is not used, or not yet.
  std::vector<std::string> why_;        ///< By server: why it is lost for ever.
  std::vector<bool> leaving_;           ///< By server: it is asked to end.
  std::vector<bool> unneeded_;          ///< By server: it leaves, and no table needs it.
  std::vector<std::string> addresses_;  ///< By server; of those that were added.
  std::vector<Opened> tables_;          ///< By number.

  // The call that is under way, or the last one.
  Phase phase_ = Phase::kIdle;
  TableNumber table_ = 0;
  bool saves_ = false;  ///< What kSettle is for: a save, or a copy before a push.
  std::string what_;
  std::shared_ptr<Fetch> pulled_;       ///< Of a pull; shared with `prefetched` at its beginning.
  bool was_prefetched_ = false;         ///< It was asked for before the pull.
  PushUnderWay push_;                   ///< Of a push, until it is under way.
  std::map<uint32_t, uint64_t> taken_;  ///< By server: steps, as it answered OPEN.
  Move move_;
  Export wanted_;
  CheckpointPlace place_;  ///< Of a save; of a table alone its attempt counts rounds.
  bool counts_ = false;    ///< As Save has it, and the next.
  std::optional<checkpoint::Base> base_ = {};
  bool saves_alone_ = true;  ///< The checkpoint is of the table's own step.
  bool adopts_ = false;      ///< What kLoad is for: to adopt once more, or to load.
  Bytes packed_;
  size_t move_bytes_ = 0;
  size_t unanswered_ = 0;
  bool again_ = false;  ///< All that is not answered is to be asked again.
  Status failure_;      ///< The first one that a server answered.
  Status stopped_;
  Status result_;
  std::vector<std::string> notes_;
};

}  // namespace corro::table
