// TableService: what a table server does with what ranks say, without sockets; time is injected.
//
//   TableService service({.index = 0, .ranks = 2}, [&](uint64_t client, Bytes message) {...});
//   service.admit(7, /*rank=*/1);        // a connection
//   service.hear(7, header, body, now);  // what it says; answers go through the function above
//   service.dismiss(7);
//
// What a rank asks is answered in order, but for PUSHED, which waits for the pushes of the other
// ranks (served_table.h), no longer than the rank has patience: then it is told for whom the step
// waits.
//
// News are what one rank says and all have to know: LOST, a server that somebody cannot reach and
// that all leave together, since it would wait for the pushes of those that have left; and HOLDS,
// who holds which rows of a table. The service keeps them, passes them on to all other connections
// at once, and says them on each new connection behind the answer to OPEN. So who has an answer of
// this server knows what the server had heard before.
//
// What the server keeps of each table, and has done with it, stands in a table recorder, for others:
// since a second ago or less.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "obs/table_recorder.h"
#include "table/service/messages.h"
#include "table/service/served_table.h"
#include "table/service/service_counts.h"
#include "table/service/snapshot_store.h"

namespace corro::table {

/// Loop-confined.
class TableService {
 public:
  struct Options {
    uint32_t index = 0;                    ///< Of this server.
    uint32_t ranks = 1;                    ///< Of the job.
    uint32_t servers = 1;                  ///< With which the job begins.
    size_t shards = kShards;               ///< As of Holders.
    size_t page_bytes = size_t{1} << 20U;  ///< Of a snapshot's rows that are handed out at once.
    /// Of this process's memory.
    MemoryGuard::Limit limit = [] { return io::tightest_memory_limit(); };
    obs::TableRecorder* recorder = nullptr;  ///< Borrowed; null: nobody looks.
    /// That of hear(): asked how long pulls take.
    std::function<Time()> clock = monotonic_now;
  };
  /// `client`: one that was admitted, and not dismissed.
  using Send = std::function<void(uint64_t client, Bytes message)>;

  /// `store` is borrowed.
  TableService(const Options& options, SnapshotStore& store, Send send)
      : options_(options), store_(store), send_(std::move(send)), guard_(options.limit) {}

  /// A rank's connection, by a number that no other one had.
  void admit(uint64_t client, uint32_t rank) { clients_[client].rank = rank; }
  void dismiss(uint64_t client);
  /// Takes one message. Fails with what ends the connection.
  [[nodiscard]] Status hear(uint64_t client, const Header& header, BytesView body, Time now);

  /// When expire() or publish() has something to do.
  [[nodiscard]] Time wake() const;
  /// Tells ranks that have waited too long for others.
  void expire(Time now);
  /// Writes to the recorder if something was heard and it is time; at once of a table that was opened,
  /// or whose rows were loaded.
  void publish(Time now);

  /// The rank of this server's number, in whose process it is, pushes no more: who waits for a push
  /// of it is told.
  void end_own_pushes();

  /// A snapshot is being written: work() has something to do, now, or once its writer has made
  /// progress.
  [[nodiscard]] bool has_work() const;
  /// Does a piece of it: hands out a page, or tells rank 0 that a part is written, or read.
  void work();

  /// The server is to end: tells all ranks. Rank 0 has its rows copied to others, and releases it.
  void leave();
  [[nodiscard]] bool is_released() const { return is_released_; }

  /// The table of this name, or null.
  [[nodiscard]] const ServedTable* find(const std::string& table) const;

 private:
  /// A push that waits for other ranks.
  struct Waiting {
    uint64_t client = 0;
    uint16_t table = 0;
    uint32_t request = 0;
    uint64_t step = 0;
    Time deadline;
  };
  /// A pull that waits for a step.
  struct WaitingPull {
    uint64_t client = 0;
    Header header;
    PullHead head;
    std::vector<uint64_t> keys;
  };
  struct Kept {
    std::unique_ptr<ServedTable> table;
    size_t first_shards = 0;  ///< Those of this server before ranks say which it has.
    std::optional<size_t> recorded_as = {};  ///< Its number in the recorder; none: it is not shown.
    ServiceCounts counts = {};
    std::vector<Waiting> waiting = {};
    std::vector<WaitingPull> pulls = {};
    uint64_t version = 0;
    Bytes holds = {};  ///< The body of HOLDS of this version.
    /// The part of a snapshot that is being written, or was the last one; attempt 0: none.
    Saved saved = {};
    std::unique_ptr<PartWriter> writer = nullptr;  ///< Null: it is not being written.
    bool all_out = false;                          ///< All of it was handed to the writer.
    /// What is being loaded, and who has asked; null: nothing is.
    std::unique_ptr<RowsLoading> loading = nullptr;
    Load load = {};
    uint64_t loading_client = 0;
    Header loading_header = {};
    std::optional<LoadedRows> loaded = {};  ///< Until ADOPT.
  };
  struct Client {
    uint32_t rank = 0;
    std::map<uint16_t, Kept*> tables;  ///< By the worker's numbers; borrowed.
    size_t waiting_bytes = 0;          ///< Of the keys of its pulls that wait.
  };

  Status answer(uint64_t client, const Header& header, BytesView body, Time now);
  Status answer_about(Kept& kept, uint64_t client, const Header& header, BytesView body, Time now);
  Status open(uint64_t client, const Header& header, BytesView body, Time now);
  Result<Kept*> add(const Open& open);
  Status give_up(uint64_t client, const Header& header, BytesView body);
  Status pull(Kept& kept, uint64_t client, const Header& header, BytesView body, Time now);
  Status give_rows(Kept& kept, uint64_t client, const Header& header, const Pull& pull, Time since);
  void answer_pulls(Kept& kept);
  Status push(Kept& kept, uint64_t client, const Header& header, BytesView body, Time now);
  Status pack(const ServedTable& table, uint64_t client, const Header& header, BytesView body);
  Status unpack(ServedTable& table, uint64_t client, const Header& header, BytesView body);
  // Snapshots, and leaving (service_snapshots.cc).
  Status save(Kept& kept, uint64_t client, const Header& header, BytesView body);
  void hand_out(Kept& kept);
  void end_part(Kept& kept, const Status& status);
  void tell_saved(const Kept& kept);
  Status load(Kept& kept, uint64_t client, const Header& header, BytesView body);
  void end_load(Kept& kept);
  Status adopt(Kept& kept, uint64_t client, const Header& header, Time now);
  Status release(uint64_t client, const Header& header);

  Status hold(Kept& kept, uint64_t client, const Header& header, BytesView body);
  void finish_step(Kept& kept);
  void refuse_waiting(Kept& kept);
  void reply(uint64_t client, const Header& to, MessageKind kind, BytesView body);
  void reply(const Waiting& to, MessageKind kind, BytesView body);
  void publish_by(Time time);
  [[nodiscard]] static obs::TableCounts count(const Kept& kept);

  const Options options_;
  SnapshotStore& store_;
  const Send send_;
  MemoryGuard guard_;
  std::map<uint64_t, Client> clients_;
  std::map<std::string, Kept> tables_;  ///< By name.
  bool own_pushes_ended_ = false;
  bool is_leaving_ = false;
  bool is_released_ = false;
  std::set<uint32_t> lost_;          ///< Other servers that no rank uses any more.
  Time publish_at_ = Time::never();  ///< Never: nothing was heard since the last time.
  Time published_{};
};

}  // namespace corro::table
