// Rank 0 copies rows, and tells; the other ranks hear.
#include <algorithm>
#include <utility>

#include "table/service/worker.h"

namespace corro::table {

// -- rank 0 ---------------------------------------------------------------------------------------

/// Before a push: what is to be copied; or the pushes under way are to be answered before servers
/// that leave are left.
bool TableWorker::choose_move() {
  Opened& opened = tables_[table_];
  if (options_.rank != 0) return false;
  look_for_server();
  if (!opened.moves || opened.settled || opened.saving) return false;
  const auto move = opened.holders.next_move(absent(), opened.shards_at_once);
  if (!move) {
    auto next = opened.holders.without_leaving(absent());
    if (next && !opened.pushes.empty()) return true;
    if (next) opened.holders = *std::move(next);
    opened.settled = true;
    return false;
  }
  move_ = *move;
  wanted_ = {
      .shards = move->shards, .from = 0, .most_bytes = static_cast<uint32_t>(options_.move_bytes)};
  move_bytes_ = 0;
  return true;
}

/// For a server that was lost another one may have been started, and others if somebody asks for it.
void TableWorker::look_for_server() {
  const auto next = static_cast<uint32_t>(lost_.size());
  const auto address = links_.find(next);
  if (!address.ok()) lose(next, std::string(address.status().message()));
  if (address.ok() && *address) add(next, **address);
}

void TableWorker::ask_export() {
  const Opened& opened = tables_[table_];
  if (!opened.holders.servers().contains(move_.target))
    links_.questions(move_.target)
        .open(table_, encode_open(opened.asked),
              counted([](const Status&, MessageKind, BytesView) {}));
  const auto take = [this](const Status&, MessageKind kind, BytesView body) {
    const auto rows = decode_packed(body);
    if (kind != MessageKind::kExported || !rows.ok()) {
      failure_ = {Code::kInternal, "table: an answer that is none"};
      return;
    }
    packed_.assign(body.begin(), body.end());
    move_bytes_ += body.size();
    wanted_.from = rows->more ? rows->keys.back() + 1 : 0;
  };
  links_.questions(move_.source)
      .ask(encode_message({.kind = MessageKind::kExport, .table = table_}, encode_export(wanted_)),
           counted(take));
}

void TableWorker::ask_import() {
  links_.questions(move_.target)
      .ask(encode_message({.kind = MessageKind::kImport, .table = table_}, packed_),
           counted([](const Status&, MessageKind, BytesView) {}));
}

/// The rows are copied. With this push all ranks hear of it.
void TableWorker::finish_move() {
  Opened& opened = tables_[table_];
  opened.holders = opened.holders.after(move_, absent());
  if (move_bytes_ > options_.move_bytes) {
    opened.shards_at_once = std::max<size_t>(1, opened.shards_at_once / 2);
  } else if (move_bytes_ < options_.move_bytes / 2) {
    opened.shards_at_once = std::min(kShards, opened.shards_at_once * 2);
  }
}

/// Before the push, to a server that has not heard of this version.
void TableWorker::tell_holds(TableNumber table, uint32_t server) {
  Opened& opened = tables_[table];
  const uint64_t version = opened.holders.version();
  if (opened.told[server] >= version) return;
  const auto take = [this, table, server, version](const Status& status, MessageKind, BytesView) {
    if (status.ok()) tables_[table].told[server] = version;
  };
  links_.questions(server).ask(
      encode_message({.kind = MessageKind::kHolds, .table = table}, holds_body(opened)), take);
}

Bytes TableWorker::holds_body(const Opened& opened) const {
  Holds holds{.version = opened.holders.version(), .servers = {}};
  for (const auto& [server, shards] : opened.holders.servers())
    holds.servers.push_back({server, addresses_[server], shards});
  return encode_holds(holds);
}

// -- all ranks ------------------------------------------------------------------------------------

void TableWorker::hear_holds(TableNumber table, const Holds& holds) {
  if (table >= tables_.size() || holds.version <= tables_[table].holders.version()) return;
  Opened& opened = tables_[table];
  std::map<uint16_t, ShardSet> shards;
  for (const Holds::Server& server : holds.servers) {
    const auto number = static_cast<uint16_t>(server.number);
    add(server.number, server.address);
    if (!lost_[number] && !opened.holders.servers().contains(number))
      links_.questions(number).open(table, encode_open(opened.asked), nullptr);
    shards[number] = server.shards;
  }
  opened.holders.become(holds.version, std::move(shards));
  if (!opened.pushes.empty()) again_ = true;
}

}  // namespace corro::table
