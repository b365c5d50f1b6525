// What a server does for snapshots, and when it is to leave.
//
// A part of a snapshot, by SAVE:
//
//   handing out   rows go page by page to the writer, whenever it has room; steps are taken meanwhile
//   all out       the writer brings the rest to the disk
//   written       or not: all clients of rank 0 are told, also those that come later
//
// Another SAVE gives up what was begun before.
//
// Rows are read, by LOAD, in threads of the store, beside all that other tables are asked:
//
//   loading    the rows come into a table of their own. The same LOAD once more, on a new connection,
//              waits for these; another one gives them up
//   loaded     LOADED is said; or why not
//   adopted    by ADOPT they are the table. A step that is taken before gives them up
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "table/service/service.h"

namespace corro::table {

Status TableService::save(Kept& kept, uint64_t client, const Header& header, BytesView body) {
  CORRO_ASSIGN(const Save save, decode_save(body));
  const ServedTable& table = *kept.table;
  if (save.attempt == 0 || save.steps != table.steps())
    return {Code::kFailedPrecondition,
            fmt::format("table {}: it has taken {} steps, and is to be saved after {}",
                        table.spec().name, table.steps(), save.steps)};
  if (save.attempt != kept.saved.attempt) {
    kept.writer = store_.begin(save, {table.spec(), save.steps});
    kept.saved = {save.attempt, {}};
    kept.all_out = false;
    kept.table->begin_snapshot(save);
  }
  reply(client, header, MessageKind::kSaving, {});
  return {};
}

bool TableService::has_work() const {
  return std::ranges::any_of(tables_ | std::views::values, [](const Kept& kept) {
    if (kept.loading && kept.loading->done()) return true;
    return kept.writer && ((!kept.all_out && kept.writer->has_room()) || kept.writer->result());
  });
}

void TableService::work() {
  for (Kept& kept : tables_ | std::views::values) {
    if (kept.loading && kept.loading->done()) end_load(kept);
    if (!kept.writer) continue;
    if (kept.writer->result()) {
      end_part(kept, kept.writer->result().value_or(Status()));
    } else if (!kept.all_out && kept.writer->has_room()) {
      hand_out(kept);
    }
  }
}

/// A page; blocks while the writer has no room.
void TableService::hand_out(Kept& kept) {
  if (kept.writer->result()) return end_part(kept, *kept.writer->result());
  auto page = kept.table->next_page(options_.page_bytes);
  if (!page.ok()) return end_part(kept, page.status());
  if (*page) return kept.writer->write(**std::move(page));
  kept.all_out = true;
  kept.writer->finish();
}

void TableService::end_part(Kept& kept, const Status& status) {
  kept.saved.status = status;
  kept.writer.reset();
  kept.table->end_snapshot();
  tell_saved(kept);
}

void TableService::tell_saved(const Kept& kept) {
  const Bytes body = encode_saved(kept.saved);
  for (const auto& [client, known] : clients_)
    for (const auto& [number, table] : known.tables)
      if (table == &kept && known.rank == 0)
        send_(client, encode_message({.kind = MessageKind::kSaved, .table = number}, body));
}

Status TableService::load(Kept& kept, uint64_t client, const Header& header, BytesView body) {
  CORRO_ASSIGN(Load load, decode_load(body));
  kept.loading_client = client;
  kept.loading_header = header;
  if (kept.loading && kept.load == load) return {};
  kept.loaded.reset();
  kept.loading.reset();  // Before the next one: memory is for one.
  kept.loading = store_.begin_load(load.folder, load.step,
                                   {.spec = kept.table->spec(),
                                    .weights_only = load.weights_only,
                                    .shards = load.shards,
                                    .shard_count = options_.shards});
  kept.load = std::move(load);
  return {};
}

/// Whoever has asked may be gone: a new connection asks again, and all is read again.
void TableService::end_load(Kept& kept) {
  auto loaded = std::exchange(kept.loading, nullptr)->take();
  const Status status = loaded.status();
  if (loaded.ok()) kept.loaded = std::move(loaded).value();
  if (!clients_.contains(kept.loading_client)) return;
  if (kept.loaded) {
    reply(kept.loading_client, kept.loading_header, MessageKind::kLoaded,
          encode_loaded(kept.loaded->steps));
  } else {
    reply(kept.loading_client, kept.loading_header, MessageKind::kError, encode_error(status));
  }
}

/// Asked again it has adopted them already.
Status TableService::adopt(Kept& kept, uint64_t client, const Header& header, Time now) {
  if (kept.loaded) {
    kept.writer.reset();
    kept.table->adopt(std::move(kept.loaded->rows), kept.loaded->steps);
    kept.loaded.reset();
    publish_by(now);
  }
  reply(client, header, MessageKind::kAdopted, {});
  return {};
}

// -- leaving --------------------------------------------------------------------------------------

void TableService::leave() {
  if (std::exchange(is_leaving_, true)) return;
  for (const auto& [client, known] : clients_)
    if (!known.tables.empty()) send_(client, encode_message({.kind = MessageKind::kLeaving}, {}));
}

Status TableService::release(uint64_t client, const Header& header) {
  is_released_ = true;
  reply(client, header, MessageKind::kRelease, {});
  return {};
}

}  // namespace corro::table
