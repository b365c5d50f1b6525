// Tables: what a process uses tables by, wherever their rows are: here, or on servers.
//
//   CORRO_ASSIGN(auto tables, connect_tables({...}));          // or local_tables()
//   CORRO_ASSIGN(const TableNumber users, tables->open({.name = "users", .dim = 16}));
//   CORRO_TRY(tables->pull(users, ids, values));
//   CORRO_TRY(tables->push(users, ids, gradients));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/socket.h"
#include "table/types.h"
#include "wire/bootstrap.h"
#include "wire/digest.h"

namespace corro::table {

using TableNumber = uint16_t;

/// Where a table's rows go as a part of a checkpoint, whose folder the caller has locked, and which
/// it commits (checkpoint/writer.h).
struct CheckpointPlace {
  std::string folder;    ///< Of all checkpoints, as an absolute path.
  uint64_t step = 0;     ///< Of the checkpoint.
  uint64_t attempt = 0;  ///< Tells it from others of the step; > 0.
  uint32_t table = 0;    ///< The table's place among those of the checkpoint.
};

/// Which snapshots of a table there are.
struct SavePolicy {
  size_t keep = 2;  ///< So many are left, the newest among them, and those on which they build.
  /// One of so many has all rows, and the others what has changed since the one before; at least 1.
  size_t full_every = 1;
};

/// Externally synchronized: one call at a time, all of which may block.
class Tables {
 public:
  virtual ~Tables() = default;
  Tables() = default;
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  /// The table of this name; on servers it is made by whoever opens it first. INVALID_ARGUMENT if
  /// the spec is none, or differs from that of others. `replicas`: further servers that have each
  /// row, at most kMaxReplicas; one server less than there are, if that is more.
  [[nodiscard]] virtual Result<TableNumber> open(const TableSpec& spec, uint32_t replicas) = 0;

  /// Writes the rows of these ids: `values` is [ids.size(), dim] f32. Changes nothing. The rows have
  /// all steps up to the one of this rank's last push; in bounded mode they may lack the last
  /// `staleness` of them; in async mode they have this rank's pushes that are answered, and those
  /// before the last prefetch() of these ids at least.
  [[nodiscard]] virtual Status pull(TableNumber table, std::span<const uint64_t> ids,
                                    std::span<float> values) = 0;

  /// Begins to get the rows of these ids, for the next pull() of the same ids in the same order,
  /// which gives what it would have given without. Does not wait for answers. So many as `most`, at
  /// least 1, are kept for pulls to come: the oldest one goes. In a process by itself it does
  /// nothing.
  [[nodiscard]] virtual Status prefetch(TableNumber table, std::span<const uint64_t> ids,
                                        size_t most) = 0;

  /// Takes a step of the table, once every rank has called it: the gradients of all ranks' ids,
  /// `gradients` of [ids.size(), dim] f32, are added up in the order of the ranks, and within a rank
  /// in the order of its ids. When it returns all servers have changed their rows. In bounded mode
  /// they have for all pushes of this rank but the last `staleness`. In async mode this rank's push
  /// is a step by itself, and no other rank has to call it. INVALID_ARGUMENT names a gradient that is
  /// not finite: nothing has changed then. After any other failure the table takes no more pushes:
  /// whether the step was taken is not known. So it is when a push fails that has returned: then the
  /// next call fails with that. After RESOURCE_EXHAUSTED, a server without memory or disk for the
  /// rows, it can be pulled from; else it is of no use.
  [[nodiscard]] virtual Status push(TableNumber table, std::span<const uint64_t> ids,
                                    std::span<const float> gradients) = 0;

  /// Blocks until all pushes of this rank are answered. Fails as they do.
  [[nodiscard]] virtual Status wait(TableNumber table) = 0;

  /// So many servers have each row of the table, or more: 1 + replicas, or all servers if they are
  /// fewer. One less for each server that is lost, as far as this rank has heard, until its rows
  /// are copied. 1 in a process by itself. Does not block.
  [[nodiscard]] virtual uint32_t copies(TableNumber table) const = 0;
  /// Begins a snapshot in a folder of the table's own: its rows after the steps that it has taken. Of a
  /// step there is one snapshot. On servers rank 0 calls it, between two of its pushes; other ranks
  /// need not, and it does nothing there. Servers write while the table goes on, into the same
  /// folder, which therefore is on a file system that all share. Waits for the one before, and in
  /// a process by itself until all is written. Tables whose rows go by themselves, and the first
  /// snapshot of a process in a folder, have all rows, whatever the policy is.
  /// INVALID_ARGUMENT if the folder is another table's, FAILED_PRECONDITION if another process
  /// writes there. What goes wrong later is a line on stderr.
  [[nodiscard]] virtual Status save(TableNumber table, const std::string& folder,
                                    const SavePolicy& policy) = 0;
  /// Blocks until no snapshot of the table is being written. The step of the newest one that this
  /// process has saved; none: none, or it is not rank 0.
  [[nodiscard]] virtual Result<std::optional<uint64_t>> wait_for_save(TableNumber table) = 0;
  /// As save(), but as parts of a checkpoint that somebody else commits. Fails where a server is lost
  /// as it begins.
  [[nodiscard]] virtual Status save_into(TableNumber table, const CheckpointPlace& place) = 0;
  /// How many parts the save_into() of this attempt has made, once all are on the disk; none: not yet.
  /// Does not block. Fails if they never will be. Says either once.
  [[nodiscard]] virtual Result<std::optional<uint32_t>> parts_written(TableNumber table,
                                                                      uint64_t attempt) = 0;
  /// Reads rows, the optimizer's state and the number of steps, which it returns, from the checkpoint
  /// of this step, which may be of any number of servers; for adopt(). Rank 0 calls both while no
  /// rank uses the table. Blocks. The table is as before: DATA_LOSS if the checkpoint is damaged,
  /// INVALID_ARGUMENT if it is of other tables; the optimizer may be another with `weights_only`,
  /// and its state begins anew.
  [[nodiscard]] virtual Result<uint64_t> load(TableNumber table, const std::string& folder,
                                              uint64_t step, bool weights_only) = 0;
  /// Goes on with what was loaded. Then all other ranks call adopt_steps(). Blocks.
  [[nodiscard]] virtual Status adopt(TableNumber table) = 0;
  virtual void adopt_steps(TableNumber table, uint64_t steps) = 0;

  /// The learning rate of this rank's next pushes; it has to be the same on all ranks.
  [[nodiscard]] virtual Status set_lr(TableNumber table, float lr) = 0;
  /// Steps that were taken, as far as this rank knows: its pushes that are answered.
  [[nodiscard]] virtual uint64_t steps(TableNumber table) const = 0;
  /// In a forked child, where connections are the parent's. Nothing else may be called after it.
  virtual void abandon_in_child() {}
};

/// In this process, for itself alone.
[[nodiscard]] std::unique_ptr<Tables> local_tables();

struct ServedOptions {
  wire::Digest job{};
  wire::Secret secret{};
  uint32_t rank = 0;
  uint32_t ranks = 1;
  std::vector<io::SocketAddress> servers;
  Duration patience = std::chrono::seconds(60);    ///< Of each call.
  Duration lost_after = std::chrono::seconds(10);  ///< A server that cannot be reached for so long.
  /// Of rank 0: the address of a server that was started after the job began, by its number; the
  /// first of them is servers.size(). None: there is none yet. Fails if there never will be one
  /// of this number. Does not wait; asked twice a second while servers are lost, and else every two
  /// seconds. Null: none comes.
  std::function<Result<std::optional<io::SocketAddress>>(uint32_t server)> find_server = nullptr;
  /// Asked several times a second while a call waits: whether it was interrupted.
  std::function<bool()> interrupted = nullptr;
};
/// On servers. Connects when it is first used. A call fails with UNAVAILABLE if so many servers are
/// lost that nobody has some rows any more, with DEADLINE_EXCEEDED if other ranks do not push, and with CANCELLED if it is interrupted.
[[nodiscard]] std::unique_ptr<Tables> served_tables(const ServedOptions& options);

/// INVALID_ARGUMENT names the first gradient of [ids.size(), dim] that is not finite.
[[nodiscard]] Status check_finite(const TableSpec& spec, std::span<const uint64_t> ids,
                                  std::span<const float> gradients);

}  // namespace corro::table
