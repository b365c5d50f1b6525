#include "table/service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "wire/server_number.h"

namespace corro::table {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostTables = 4096;

}  // namespace

const ServedTable* TableService::find(const std::string& table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second.table.get();
}

Status TableService::hear(uint64_t client, const Header& header, BytesView body, Time now) {
  Status status = answer(client, header, body, now);
  if (status.ok()) return {};
  // What no worker sends ends the connection; what a user can do wrong is answered.
  if (status.code() == Code::kInternal) return status;
  reply(client, header, MessageKind::kError, encode_error(status));
  return {};
}

Status TableService::answer(uint64_t client, const Header& header, BytesView body, Time now) {
  if (header.kind == MessageKind::kOpen) return open(client, header, body);
  if (header.kind == MessageKind::kLost) return give_up(client, header, body);
  const auto& tables = clients_.at(client).tables;
  const auto found = tables.find(header.table);
  if (found == tables.end())
    return {Code::kInternal, "table: a message about a table that was not opened"};
  return answer_about(*found->second, client, header, body, now);
}

Status TableService::answer_about(Kept& kept, uint64_t client, const Header& header, BytesView body,
                                  Time now) {
  switch (header.kind) {
    case MessageKind::kPull:
      return pull(*kept.table, client, header, body);
    case MessageKind::kPush:
      return push(kept, client, header, body, now);
    case MessageKind::kExport:
      return pack(*kept.table, client, header, body);
    case MessageKind::kImport:
      return unpack(*kept.table, client, header, body);
    case MessageKind::kHolds:
      return hold(kept, client, header, body);
    default:
      return {Code::kInternal, "table: a message that servers send"};
  }
}

Status TableService::open(uint64_t client, const Header& header, BytesView body) {
  CORRO_ASSIGN(const Open open, decode_open(body));
  Client& asking = clients_.at(client);
  if (open.rank != asking.rank || open.ranks != options_.ranks)
    return {Code::kFailedPrecondition,
            fmt::format("table {}: rank {} of {} asks as rank {} of {}", open.spec.name,
                        asking.rank, options_.ranks, open.rank, open.ranks)};
  auto found = tables_.find(open.spec.name);
  if (found == tables_.end()) {
    if (tables_.size() >= kMostTables)
      return {Code::kResourceExhausted, fmt::format("table: {} are the most", kMostTables)};
    CORRO_ASSIGN(auto table, ServedTable::create(open, options_.shards, &guard_));
    found = tables_.emplace(open.spec.name, Kept{.table = std::move(table)}).first;
  }
  Kept& kept = found->second;
  CORRO_TRY(kept.table->open(open));
  asking.tables[header.table] = &kept;
  reply(client, header, MessageKind::kOpened, encode_opened({kept.table->steps()}));
  for (const uint32_t server : lost_) send_(client, encode_lost(0, server));
  if (kept.version > 0)
    send_(client, encode_message({.kind = MessageKind::kHolds, .table = header.table}, kept.holds));
  return {};
}

Status TableService::give_up(uint64_t client, const Header& header, BytesView body) {
  CORRO_ASSIGN(const uint32_t server, decode_lost(body));
  if (server >= static_cast<uint32_t>(wire::kMostServers)) return {Code::kInternal, "no server"};
  send_(client, encode_lost(header.request, server));
  if (!lost_.insert(server).second) return {};
  for (const uint64_t other : clients_ | std::views::keys)
    if (other != client) send_(other, encode_lost(0, server));
  return {};
}

Status TableService::pull(const ServedTable& table, uint64_t client, const Header& header,
                          BytesView body) {
  CORRO_ASSIGN(const auto keys, decode_pull(body));
  const size_t row = table.spec().dim * sizeof(float);
  if (keys.size() > kMaxBodyBytes / row)
    return {Code::kInvalidArgument,
            fmt::format("table {}: {} rows at once; {} are the most", table.spec().name,
                        keys.size(), kMaxBodyBytes / row)};
  Bytes rows(kHeaderBytes + keys.size() * row);
  std::ranges::copy(encode_header({.kind = MessageKind::kRows,
                                   .table = header.table,
                                   .request = header.request,
                                   .body = static_cast<uint32_t>(keys.size() * row)}),
                    rows.begin());
  auto* const values = reinterpret_cast<float*>(rows.data() + kHeaderBytes);
  CORRO_TRY(table.pull(keys, std::span(values, keys.size() * table.spec().dim)));
  send_(client, std::move(rows));
  return {};
}

// -- steps ----------------------------------------------------------------------------------------

Status TableService::push(Kept& kept, uint64_t client, const Header& header, BytesView body,
                          Time now) {
  CORRO_ASSIGN(const Push push, decode_push(body, kept.table->spec().dim));
  CORRO_ASSIGN(const ServedTable::Taken taken, kept.table->take(clients_.at(client).rank, push));
  if (taken == ServedTable::Taken::kStale) return {};
  if (taken != ServedTable::Taken::kWhole) {
    reply(client, header, MessageKind::kPushed, {});
    return {};
  }
  kept.waiting.push_back({.client = client,
                          .table = header.table,
                          .request = header.request,
                          .step = push.head.step,
                          .deadline = now + milliseconds(push.head.patience_ms)});
  if (kept.table->ready()) finish_step(kept);
  return {};
}

void TableService::finish_step(Kept& kept) {
  const Status status = kept.table->apply();
  for (const Waiting& waiting : std::exchange(kept.waiting, {})) {
    if (status.ok()) {
      reply(waiting, MessageKind::kPushed, {});
    } else {
      reply(waiting, MessageKind::kError, encode_error(status));
    }
  }
}

Time TableService::wake() const {
  Time wake = Time::never();
  for (const Kept& kept : tables_ | std::views::values)
    for (const Waiting& waiting : kept.waiting) wake = std::min(wake, waiting.deadline);
  return wake;
}

void TableService::expire(Time now) {
  for (auto& [name, kept] : tables_) {
    const auto is_late = [now](const Waiting& waiting) { return waiting.deadline <= now; };
    std::vector<Waiting> late;
    std::ranges::copy_if(kept.waiting, std::back_inserter(late), is_late);
    std::erase_if(kept.waiting, is_late);
    for (const Waiting& waiting : late)
      reply(
          waiting, MessageKind::kError,
          encode_error({Code::kDeadlineExceeded,
                        fmt::format("table {}: push {}: server {} waits for {}", name, waiting.step,
                                    options_.index, kept.table->describe_missing())}));
  }
}

// -- rows that are copied -------------------------------------------------------------------------

Status TableService::pack(const ServedTable& table, uint64_t client, const Header& header,
                          BytesView body) {
  CORRO_ASSIGN(const Export wanted, decode_export(body));
  CORRO_ASSIGN(const Bytes packed, table.pack(wanted));
  reply(client, header, MessageKind::kExported, packed);
  return {};
}

Status TableService::unpack(ServedTable& table, uint64_t client, const Header& header,
                            BytesView body) {
  CORRO_ASSIGN(const PackedRows rows, decode_packed(body));
  CORRO_TRY(table.unpack(rows));
  reply(client, header, MessageKind::kImported, {});
  return {};
}

Status TableService::hold(Kept& kept, uint64_t client, const Header& header, BytesView body) {
  CORRO_ASSIGN(const Holds holds, decode_holds(body));
  reply(client, header, MessageKind::kHolds, {});
  if (holds.version <= kept.version) return {};
  kept.version = holds.version;
  kept.holds.assign(body.begin(), body.end());
  const auto mine = std::ranges::find(holds.servers, options_.index, &Holds::Server::number);
  if (mine != holds.servers.end()) kept.table->hold(holds.version, mine->shards);
  for (const auto& [other, known] : clients_) {
    if (other == client) continue;
    for (const auto& [number, table] : known.tables)
      if (table == &kept)
        send_(other, encode_message({.kind = MessageKind::kHolds, .table = number}, body));
  }
  return {};
}

// -- answers --------------------------------------------------------------------------------------

void TableService::reply(uint64_t client, const Header& to, MessageKind kind, BytesView body) {
  send_(client, encode_message({.kind = kind, .table = to.table, .request = to.request}, body));
}

/// To whoever has asked, if the connection is still there.
void TableService::reply(const Waiting& to, MessageKind kind, BytesView body) {
  if (!clients_.contains(to.client)) return;
  reply(to.client, {.table = to.table, .request = to.request}, kind, body);
}

}  // namespace corro::table
