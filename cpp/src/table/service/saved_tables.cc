#include "table/service/saved_tables.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "table/service/disk_snapshots.h"

namespace corro::table {

Result<std::optional<checkpoint::Base>> SavedTables::begin_alone(TableNumber table,
                                                                 const std::string& folder,
                                                                 uint64_t step,
                                                                 const SavePolicy& policy) {
  const auto known = folders_.find(folder);
  if (known == folders_.end()) {
    CORRO_ASSIGN(checkpoint::FolderLock lock, lock_snapshots(folder));
    folders_.emplace(folder, LockedFolder{table, std::move(lock)});
  } else if (known->second.table == table) {
    CORRO_TRY(remove_unfinished(folder));
  } else {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: another table is saved here; give each table a folder of its own",
                    folder));
  }
  Saved& saved = saved_[table];
  saved.alone = true;
  saved.folder = folder;
  saved.keep = policy.keep;
  saved.base = saved.chain.base_for(folder, step, policy);
  return saved.base;
}

void SavedTables::begin_part(TableNumber table) { saved_[table].alone = false; }

void SavedTables::finish(const TableWorker::Written& written) {
  Saved& saved = saved_[written.table];
  Status status = written.status;
  if (!saved.alone) {
    saved.parts.emplace(written.attempt,
                        status.ok() ? Result<uint32_t>(written.parts) : Result<uint32_t>(status));
    return;
  }
  if (status.ok())
    status =
        commit_snapshot(saved.folder, written.step, written.attempt, written.parts, saved.keep);
  if (status.ok()) {
    saved.step = written.step;
    saved.chain.add(saved.folder, written.step, saved.base);
  } else {
    fmt::print(stderr, "corro: {}: the snapshot of step {} was not finished: {}\n", saved.folder,
               written.step, status.message());
  }
}

std::optional<uint64_t> SavedTables::step_of(TableNumber table) const {
  const auto found = saved_.find(table);
  return found == saved_.end() ? std::nullopt : found->second.step;
}

Result<std::optional<uint32_t>> SavedTables::take_parts(TableNumber table, uint64_t attempt) {
  const auto taken = saved_[table].parts.extract(attempt);
  if (taken.empty()) return std::optional<uint32_t>();
  CORRO_TRY(taken.mapped().status());
  return std::optional(taken.mapped().value());
}

}  // namespace corro::table
