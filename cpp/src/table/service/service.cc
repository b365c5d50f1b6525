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
/// Of the keys of a client's pulls that wait for a step.
constexpr size_t kMostWaitingBytes = kMaxBodyBytes;
/// Between two times when the recorder is written.
constexpr Duration kPublishPause = std::chrono::seconds(1);

/// How many shards a server has before ranks say so; one that came later has none.
size_t first_shards_of(uint32_t server, const TableService::Options& options, uint32_t replicas) {
  if (server >= options.servers) return 0;
  const Holders first(options.servers, size_t{1} + replicas, options.shards);
  const auto found = first.servers().find(static_cast<uint16_t>(server));
  return found == first.servers().end() ? 0 : found->second.count();
}

}  // namespace

void TableService::dismiss(uint64_t client) {
  clients_.erase(client);
  for (Kept& kept : tables_ | std::views::values)
    std::erase_if(kept.pulls, [client](const WaitingPull& one) { return one.client == client; });
}

const ServedTable* TableService::find(const std::string& table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second.table.get();
}

Status TableService::hear(uint64_t client, const Header& header, BytesView body, Time now) {
  publish_by(std::max(now, published_ + kPublishPause));
  Status status = answer(client, header, body, now);
  if (status.ok()) return {};
  // What no worker sends ends the connection; what a user can do wrong is answered.
  if (status.code() == Code::kInternal) return status;
  reply(client, header, MessageKind::kError, encode_error(status));
  return {};
}

Status TableService::answer(uint64_t client, const Header& header, BytesView body, Time now) {
  if (header.kind == MessageKind::kOpen) return open(client, header, body, now);
  if (header.kind == MessageKind::kLost) return give_up(client, header, body);
  if (header.kind == MessageKind::kRelease) return release(client, header);
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
      return pull(kept, client, header, body, now);
    case MessageKind::kPush:
      return push(kept, client, header, body, now);
    case MessageKind::kExport:
      return pack(*kept.table, client, header, body);
    case MessageKind::kImport:
      return unpack(*kept.table, client, header, body);
    case MessageKind::kHolds:
      return hold(kept, client, header, body);
    case MessageKind::kSave:
      return save(kept, client, header, body);
    case MessageKind::kLoad:
      return load(kept, client, header, body);
    case MessageKind::kAdopt:
      return adopt(kept, client, header, now);
    default:
      return {Code::kInternal, "table: a message that servers send"};
  }
}

Status TableService::open(uint64_t client, const Header& header, BytesView body, Time now) {
  CORRO_ASSIGN(const Open open, decode_open(body));
  Client& asking = clients_.at(client);
  if (open.rank != asking.rank || open.ranks != options_.ranks)
    return {Code::kFailedPrecondition,
            fmt::format("table {}: rank {} of {} asks as rank {} of {}", open.spec.name,
                        asking.rank, options_.ranks, open.rank, open.ranks)};
  const auto found = tables_.find(open.spec.name);
  Kept* known = found == tables_.end() ? nullptr : &found->second;
  if (known == nullptr) {
    CORRO_ASSIGN(known, add(open));
    publish_by(now);
  }
  Kept& kept = *known;
  CORRO_TRY(kept.table->open(open));
  asking.tables[header.table] = &kept;
  reply(client, header, MessageKind::kOpened, encode_opened({kept.table->steps_of(open.rank)}));
  for (const uint32_t server : lost_) send_(client, encode_lost(0, server));
  if (kept.version > 0)
    send_(client, encode_message({.kind = MessageKind::kHolds, .table = header.table}, kept.holds));
  if (is_leaving_) send_(client, encode_message({.kind = MessageKind::kLeaving}, {}));
  if (kept.saved.attempt != 0 && kept.writer == nullptr) tell_saved(kept);
  return {};
}

Result<TableService::Kept*> TableService::add(const Open& open) {
  if (tables_.size() >= kMostTables)
    return Status(Code::kResourceExhausted, fmt::format("table: {} are the most", kMostTables));
  CORRO_ASSIGN(auto table, ServedTable::create(open, options_.shards, &guard_));
  Kept& kept = tables_.emplace(open.spec.name, Kept{.table = std::move(table)}).first->second;
  if (options_.recorder == nullptr) return &kept;
  kept.first_shards = first_shards_of(options_.index, options_, open.replicas);
  kept.recorded_as = options_.recorder->add(open.spec.name);
  return &kept;
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

// -- pulls ----------------------------------------------------------------------------------------

Status TableService::pull(Kept& kept, uint64_t client, const Header& header, BytesView body,
                          Time now) {
  CORRO_ASSIGN(const Pull pull, decode_pull(body));
  const size_t row = kept.table->spec().dim * sizeof(float) + sizeof(uint32_t);
  const size_t most = (kMaxBodyBytes - kHeaderBytes) / row;
  if (pull.keys.size() > most)
    return {Code::kInvalidArgument, fmt::format("table {}: {} rows at once; {} are the most",
                                                kept.table->spec().name, pull.keys.size(), most)};
  if (pull.head.at_least <= kept.table->steps()) return give_rows(kept, client, header, pull, now);
  size_t& waiting = clients_.at(client).waiting_bytes;
  if (waiting + pull.keys.size_bytes() > kMostWaitingBytes)
    return {Code::kResourceExhausted,
            fmt::format("table {}: too many keys wait for a step", kept.table->spec().name)};
  waiting += pull.keys.size_bytes();
  kept.pulls.push_back(
      {client, header, pull.head, std::vector(pull.keys.begin(), pull.keys.end())});
  return {};
}

Status TableService::give_rows(Kept& kept, uint64_t client, const Header& header, const Pull& pull,
                               Time since) {
  const ServedTable& table = *kept.table;
  const uint32_t dim = table.spec().dim;
  const auto changed =
      pull.head.since == 0 ? std::nullopt : table.changed_since(pull.head.since, pull.keys);
  std::span<const uint64_t> keys = pull.keys;
  std::span<const uint32_t> indices;  // None: all rows.
  std::vector<uint64_t> some;
  if (changed && changed->size() < keys.size()) {
    indices = *changed;
    for (const uint32_t index : indices) some.push_back(keys[index]);
    keys = some;
  }
  Bytes rows = encode_rows(header, table.steps(), keys.size(), dim, indices);
  CORRO_TRY(table.pull(keys, values_of(rows, keys.size(), dim)));
  send_(client, std::move(rows));
  kept.counts.add_pull(pull.keys.size(), options_.clock() - since);
  return {};
}

/// Those that have waited for a step that is taken now.
void TableService::answer_pulls(Kept& kept) {
  if (kept.pulls.empty()) return;
  const Time since = options_.clock();
  std::vector<WaitingPull> still;
  for (WaitingPull& one : std::exchange(kept.pulls, {})) {
    if (one.head.at_least > kept.table->steps()) {
      still.push_back(std::move(one));
      continue;
    }
    clients_.at(one.client).waiting_bytes -= one.keys.size() * sizeof(uint64_t);
    const Status status = give_rows(kept, one.client, one.header, {one.head, one.keys}, since);
    if (!status.ok()) reply(one.client, one.header, MessageKind::kError, encode_error(status));
  }
  kept.pulls = std::move(still);
}

// -- steps ----------------------------------------------------------------------------------------

Status TableService::push(Kept& kept, uint64_t client, const Header& header, BytesView body,
                          Time now) {
  CORRO_ASSIGN(const Push push, decode_push(body, kept.table->spec().dim));
  CORRO_ASSIGN(const ServedTable::Taken taken, kept.table->take(clients_.at(client).rank, push));
  if (taken == ServedTable::Taken::kStale) return {};
  if (taken != ServedTable::Taken::kOld) kept.counts.add_push(push.keys.size());
  if (taken != ServedTable::Taken::kWhole) {
    reply(client, header, MessageKind::kPushed, {});
    return {};
  }
  kept.waiting.push_back({.client = client,
                          .table = header.table,
                          .request = header.request,
                          .step = push.head.step,
                          .deadline = now + milliseconds(push.head.patience_ms)});
  while (kept.table->ready()) finish_step(kept);
  if (own_pushes_ended_) refuse_waiting(kept);
  return {};
}

void TableService::end_own_pushes() {
  own_pushes_ended_ = true;
  for (Kept& kept : tables_ | std::views::values) refuse_waiting(kept);
}

/// Nobody waits for a push that never comes.
void TableService::refuse_waiting(Kept& kept) {
  if (!kept.table->waits_for(options_.index)) return;
  for (const Waiting& waiting : std::exchange(kept.waiting, {}))
    reply(waiting, MessageKind::kError,
          encode_error({Code::kFailedPrecondition,
                        fmt::format("table {}: push {}: rank {} has ended, and pushes no more",
                                    kept.table->spec().name, waiting.step, options_.index)}));
}

void TableService::finish_step(Kept& kept) {
  kept.loading.reset();  // Of a restore that was given up.
  kept.loaded.reset();
  while (kept.table->has_to_hand_out()) hand_out(kept);
  const Status status = kept.table->apply();
  const bool alone = kept.table->spec().mode == Mode::kAsync;  // Nobody else's push waits.
  std::vector<Waiting> later;
  for (const Waiting& waiting : std::exchange(kept.waiting, {})) {
    if (!status.ok()) {
      reply(waiting, MessageKind::kError, encode_error(status));
    } else if (alone || waiting.step <= kept.table->steps()) {
      reply(waiting, MessageKind::kPushed, {});
    } else {
      later.push_back(waiting);
    }
  }
  kept.waiting = std::move(later);
  answer_pulls(kept);
}

Time TableService::wake() const {
  Time wake = publish_at_;
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

// -- for people -----------------------------------------------------------------------------------

void TableService::publish_by(Time time) {
  if (options_.recorder != nullptr) publish_at_ = std::min(publish_at_, time);
}

void TableService::publish(Time now) {
  if (now < publish_at_) return;
  publish_at_ = Time::never();
  published_ = now;
  for (const Kept& kept : tables_ | std::views::values)
    if (kept.recorded_as) options_.recorder->write(*kept.recorded_as, count(kept));
}

obs::TableCounts TableService::count(const Kept& kept) {
  const TableStats stats = kept.table->stats();
  obs::TableCounts counts{.rows = stats.rows,
                          .bytes = stats.bytes,
                          .shards = kept.table->shards().value_or(kept.first_shards),
                          .steps = kept.table->steps()};
  kept.counts.count(counts);
  return counts;
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
