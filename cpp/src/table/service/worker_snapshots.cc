// Rank 0 has servers write snapshots, and read them, and leaves servers that are asked to end.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "table/service/worker.h"

namespace corro::table {

// -- saving ---------------------------------------------------------------------------------------

bool TableWorker::is_writing(TableNumber table) const {
  const auto& saving = tables_[table].saving;
  return saving && !saving->over();
}

Status TableWorker::start_save(TableNumber table, const CheckpointPlace& place) {
  const Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  place_ = place;
  saves_ = true;
  saves_alone_ = false;
  counts_ = false;
  base_.reset();
  begin(table, Phase::kSettle, fmt::format("save after step {}", opened.pushed()));
  return {};
}

Status TableWorker::start_save_alone(TableNumber table, const SaveAlone& how) {
  const uint64_t step = tables_.at(table).pushed();
  CORRO_TRY(
      start_save(table, {.folder = how.folder, .step = step, .attempt = how.attempt, .table = 0}));
  saves_alone_ = true;
  counts_ = how.counts;
  base_ = how.base;
  return {};
}

/// Each shard is written by the best of its holders that are left.
void TableWorker::ask_save() {
  Opened& opened = tables_[table_];
  std::map<uint32_t, ShardSet> parts;
  for (size_t shard = 0; shard < options_.shards; ++shard) {
    const auto holders = opened.holders.of_shard(shard);
    const auto best = std::ranges::find_if(holders, [this](uint16_t one) { return !lost_[one]; });
    parts[*best].set(shard);
  }
  // What was written of one that a loss has ended cannot mix with it.
  if (saves_alone_) ++place_.attempt;
  opened.saving = Saving{.written = {.table = table_,
                                     .step = place_.step,
                                     .attempt = place_.attempt,
                                     .parts = static_cast<uint32_t>(parts.size()),
                                     .status = {}},
                         .writers = {}};
  Save save{.attempt = place_.attempt,
            .step = place_.step,
            .steps = opened.steps,
            .table = place_.table,
            .part = 0,
            .parts = static_cast<uint32_t>(parts.size()),
            .counts = counts_,
            .base = base_,
            .shards = {},
            .folder = place_.folder};
  for (const auto& [server, shards] : parts) {
    opened.saving->writers.insert(server);
    save.shards = shards;
    links_.questions(server).ask(
        encode_message({.kind = MessageKind::kSave, .table = table_}, encode_save(save)),
        counted([](const Status&, MessageKind, BytesView) {}));
    ++save.part;
  }
}

void TableWorker::start_wait_for_save(TableNumber table) {
  begin(table, Phase::kWaitForSave, "wait for a snapshot");
}

void TableWorker::hear_saved(uint32_t server, TableNumber table, const Saved& saved) {
  if (table >= tables_.size()) return;
  auto& saving = tables_[table].saving;
  if (!saving || saving->written.attempt != saved.attempt || saving->over()) return;
  saving->writers.erase(server);
  if (!saved.status.ok())
    saving->written.status = saved.status.with_context(fmt::format("server {}", server));
}

/// Nobody else has the rows of that step.
void TableWorker::give_up_parts(uint32_t server) {
  for (Opened& opened : tables_)
    if (opened.saving && !opened.saving->over() && opened.saving->writers.contains(server))
      opened.saving->written.status = {Code::kUnavailable, why_[server]};
}

std::optional<TableWorker::Written> TableWorker::take_written() {
  for (Opened& opened : tables_) {
    const bool is_asked = phase_ == Phase::kSave && &opened == &tables_[table_];
    if (!opened.saving || !opened.saving->over() || is_asked) continue;
    return std::exchange(opened.saving, std::nullopt)->written;
  }
  return std::nullopt;
}

// -- loading --------------------------------------------------------------------------------------

Status TableWorker::start_load(TableNumber table, const std::string& folder, uint64_t step,
                               bool weights_only) {
  Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  opened.load = {.step = step, .weights_only = weights_only, .shards = {}, .folder = folder};
  adopts_ = false;
  begin(table, Phase::kLoad, fmt::format("restore step {}", step));
  return {};
}

void TableWorker::start_adopt(TableNumber table) {
  adopts_ = true;
  begin(table, Phase::kAdopt, fmt::format("restore step {}", tables_.at(table).load.step));
}

/// Rows that were asked for ahead are of the table before.
void TableWorker::adopt_steps(TableNumber table, uint64_t steps) {
  Opened& opened = tables_.at(table);
  opened.steps = steps;
  opened.prefetched.clear();
}

void TableWorker::ask_load() {
  Opened& opened = tables_[table_];
  const auto take = [this, table = table_](const Status&, MessageKind, BytesView body) {
    if (const auto steps = decode_loaded(body); steps.ok()) tables_[table].loaded = *steps;
  };
  for (const auto& [server, shards] : opened.holders.servers()) {
    if (lost_[server]) continue;
    opened.load.shards = shards;
    links_.questions(server).ask(
        encode_message({.kind = MessageKind::kLoad, .table = table_}, encode_load(opened.load)),
        counted(take));
  }
}

void TableWorker::ask_adopt() {
  for (const auto& [server, shards] : tables_[table_].holders.servers())
    if (!lost_[server])
      links_.questions(server).ask(
          encode_message({.kind = MessageKind::kAdopt, .table = table_}, {}),
          counted([](const Status&, MessageKind, BytesView) {}));
}

// -- leaving --------------------------------------------------------------------------------------

void TableWorker::hear_leaving(uint32_t server) {
  if (leaving_[server]) return;
  leaving_[server] = true;
  for (Opened& opened : tables_) opened.settled = false;
  note_uncopied(fmt::format(
      "server {} stays: tables with admit_after, budget or mode async are not copied", server));
}

/// All ranks know that no table has rows there.
void TableWorker::find_unneeded() {
  for (uint32_t server = 0; server < lost_.size(); ++server) {
    const auto needs = [server](const Opened& opened) {
      return opened.holders.servers().contains(static_cast<uint16_t>(server)) ||
             opened.known < opened.holders.version();
    };
    unneeded_[server] = leaving_[server] && std::ranges::none_of(tables_, needs);
  }
}

/// Servers that no table needs may end. They are told until they do.
void TableWorker::release_servers() {
  find_unneeded();  // A table may have been opened since.
  for (uint32_t server = 0; server < lost_.size(); ++server)
    if (unneeded_[server] && !lost_[server])
      links_.questions(server).ask(encode_message({.kind = MessageKind::kRelease}, {}), nullptr);
}

/// Of tables whose rows stay where they are.
void TableWorker::note_uncopied(const std::string& why) {
  if (options_.rank != 0) return;
  for (const Opened& opened : tables_)
    if (!opened.moves)
      notes_.push_back(fmt::format("table {}: its rows are not copied to other servers: {}",
                                   opened.spec().name, why));
}

}  // namespace corro::table
