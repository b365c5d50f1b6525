#include "table/service/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "wire/server_number.h"

namespace corro::table {
namespace {

/// Of one message's rows: small enough that servers take turns among ranks.
constexpr size_t kMessageBytes = size_t{4} << 20U;

}  // namespace

TableWorker::TableWorker(const Options& options, Links& links)
    : options_(options),
      links_(links),
      lost_(options.servers.size()),
      why_(options.servers.size()),
      addresses_(options.servers) {}

// -- rounds ---------------------------------------------------------------------------------------

void TableWorker::begin(TableNumber table, Phase phase, const std::string& call) {
  table_ = table;
  what_ = fmt::format("table {}: {}", tables_[table].spec().name, call);
  phase_ = phase;
  failure_ = stopped_ = result_ = {};
  again_ = false;
  unanswered_ = 0;
  ask();
}

void TableWorker::proceed() {
  while (phase_ != Phase::kIdle) {
    const bool moving = phase_ == Phase::kExport || phase_ == Phase::kImport;
    if (!stopped_.ok()) return finish(stopped_);
    if (!failure_.ok() && !moving) return finish(failure_);
    if (!failure_.ok()) tables_[table_].moves = false;  // It would be refused again.
    if (!failure_.ok() || again_) {
      forget_all();
      failure_ = {};
      again_ = false;
      if (moving) phase_ = Phase::kPush;
      ask();
      continue;
    }
    if (unanswered_ > 0) return;
    next_round();
  }
}

void TableWorker::ask() {
  const Status status = check_rows(tables_[table_]);
  if (!status.ok()) return finish(status.with_context(what_));
  switch (phase_) {
    case Phase::kOpen:
      return ask_open();
    case Phase::kPull:
      return ask_pull();
    case Phase::kExport:
      return ask_export();
    case Phase::kImport:
      return ask_import();
    case Phase::kPush:
      return ask_push();
    case Phase::kIdle:
      return;
  }
}

void TableWorker::next_round() {
  switch (phase_) {
    case Phase::kOpen:
      return finish_open();
    case Phase::kExport:
      phase_ = Phase::kImport;
      return ask();
    case Phase::kImport:
      phase_ = wanted_.from == 0 ? Phase::kPush : Phase::kExport;
      if (phase_ == Phase::kPush) finish_move();
      return ask();
    case Phase::kPush:
      ++tables_[table_].steps;
      return finish({});
    case Phase::kPull:
    case Phase::kIdle:
      return finish({});
  }
}

/// Answers that come later are to nobody.
void TableWorker::forget_all() {
  unanswered_ = 0;
  for (uint32_t server = 0; server < lost_.size(); ++server)
    if (!lost_[server]) links_.forget(server);
}

void TableWorker::finish(const Status& status) {
  if (unanswered_ > 0) forget_all();
  if (phase_ == Phase::kPush) tables_[table_].broken = status;
  if (phase_ == Phase::kOpen && !status.ok()) tables_.pop_back();
  phase_ = Phase::kIdle;
  result_ = status;
}

/// Has the round wait for it.
Answer TableWorker::counted(Answer answer) {
  ++unanswered_;
  return
      [this, answer = std::move(answer)](const Status& status, MessageKind kind, BytesView body) {
        --unanswered_;
        if (status.ok()) {
          answer(status, kind, body);
        } else if (failure_.ok()) {
          failure_ = status;
        }
      };
}

/// UNAVAILABLE if nobody has some rows any more.
Status TableWorker::check_rows(const Opened& opened) const {
  const auto shard = opened.holders.lost_shard(lost_);
  if (!shard) return {};
  std::string text;
  for (const uint16_t server : opened.holders.of_shard(*shard))
    text += (text.empty() ? "" : "; ") + why_[server];
  return {Code::kUnavailable, text};
}

// -- open -----------------------------------------------------------------------------------------

Result<TableNumber> TableWorker::start_open(const TableSpec& spec, uint32_t replicas) {
  CORRO_TRY(check(spec));
  if (replicas > kMaxReplicas)
    return Status(Code::kInvalidArgument, fmt::format("table {}: replicas is {}; {} are the most",
                                                      spec.name, replicas, kMaxReplicas));
  const auto found = std::ranges::find(tables_, spec.name,
                                       [](const Opened& opened) { return opened.spec().name; });
  if (found != tables_.end()) {
    CORRO_TRY(check_alike(spec, found->spec()));
    if (replicas != found->asked.replicas)
      return Status(Code::kInvalidArgument,
                    fmt::format("table {}: replicas is {} here and {} there", spec.name, replicas,
                                found->asked.replicas));
    result_ = {};
    return static_cast<TableNumber>(found - tables_.begin());
  }
  if (tables_.size() >= kMaxTables)
    return Status(Code::kResourceExhausted, fmt::format("table: {} are the most", kMaxTables));
  // What admission and a budget count is of all rows of a server, and cannot be copied with some.
  const Retention& retention = spec.retention;
  const bool moves =
      retention.least_pushes <= 1 && (retention.most_bytes == 0 || !retention.spill.empty());
  tables_.push_back(
      {.asked = {spec, options_.rank, options_.ranks, replicas},
       .holders = Holders(options_.servers.size(), size_t{1} + replicas, options_.shards),
       .moves = moves,
       .settled = false});
  taken_.clear();
  const auto number = static_cast<TableNumber>(tables_.size() - 1);
  begin(number, Phase::kOpen, "open");
  return number;
}

void TableWorker::ask_open() {
  const Bytes body = encode_open(tables_[table_].asked);
  for (const auto& [server, shards] : tables_[table_].holders.servers()) {
    const auto take = [this, number = server](const Status&, MessageKind, BytesView answer) {
      if (const auto read = decode_opened(answer); read.ok()) taken_[number] = read->steps;
    };
    if (!lost_[server]) links_.questions(server).open(table_, body, counted(take));
  }
}

void TableWorker::finish_open() {
  Opened& opened = tables_[table_];
  std::erase_if(taken_, [this](const auto& one) { return lost_[one.first]; });
  for (const auto& [server, steps] : taken_) {
    opened.steps = steps;
    if (steps == taken_.begin()->second) continue;
    return finish({Code::kFailedPrecondition,
                   fmt::format("table {}: servers have taken {} and {} steps", opened.spec().name,
                               taken_.begin()->second, steps)});
  }
  finish({});
}

// -- pull -----------------------------------------------------------------------------------------

Status TableWorker::start_pull(TableNumber table, std::span<const uint64_t> ids) {
  const Opened& opened = tables_.at(table);
  // A push that found no memory, or a full disk, has changed no row of the server that says so.
  if (opened.broken.code() != Code::kResourceExhausted) CORRO_TRY(opened.broken);
  keys_ = distinct(ids);
  rows_.assign(keys_.keys.size() * opened.spec().dim, 0.0F);
  begin(table, Phase::kPull, "pull");
  return {};
}

void TableWorker::ask_pull() {
  const auto wanted = for_pull(keys_.keys, tables_[table_].holders, lost_);
  for (uint32_t server = 0; server < wanted.size(); ++server) ask_rows(server, wanted[server]);
}

void TableWorker::ask_rows(uint32_t server, const ServerKeys& wanted) {
  const size_t dim = tables_[table_].spec().dim;
  const size_t most = std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
  for (size_t first = 0; first < wanted.keys.size(); first += most) {
    const size_t count = std::min(most, wanted.keys.size() - first);
    const auto rows = std::span(wanted.rows).subspan(first, count);
    const auto take = [this, dim, into = std::vector<uint32_t>(rows.begin(), rows.end())](
                          const Status&, MessageKind kind, BytesView body) {
      if (kind != MessageKind::kRows || body.size() != into.size() * dim * sizeof(float)) {
        failure_ = {Code::kInternal, "table: an answer of another length"};
        return;
      }
      const auto* from = reinterpret_cast<const float*>(body.data());
      for (size_t i = 0; i < into.size(); ++i)
        std::copy_n(from + i * dim, dim, rows_.data() + into[i] * dim);
    };
    links_.questions(server).ask(
        encode_pull(table_, 0, std::span(wanted.keys).subspan(first, count)), counted(take));
  }
}

void TableWorker::copy_rows(std::span<float> values) const {
  const size_t dim = tables_[table_].spec().dim;
  for (size_t i = 0; i < keys_.row_of.size(); ++i)
    std::copy_n(rows_.data() + keys_.row_of[i] * dim, dim, values.data() + i * dim);
}

// -- push -----------------------------------------------------------------------------------------

Status TableWorker::start_push(TableNumber table, std::span<const uint64_t> ids,
                               std::span<const float> gradients) {
  const Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  CORRO_TRY(check_finite(opened.spec(), ids, gradients));
  keys_ = distinct(ids);
  rows_ = table::add_up(keys_, gradients, opened.spec().dim);
  table_ = table;
  const Phase phase = choose_move() ? Phase::kExport : Phase::kPush;
  begin(table, phase, fmt::format("push {}", opened.steps + 1));
  return {};
}

void TableWorker::ask_push() {
  const Holders& holders = tables_[table_].holders;
  const std::vector<ServerKeys> mine = for_push(keys_.keys, holders, lost_);
  for (const auto& [server, shards] : holders.servers()) {
    if (lost_[server]) continue;
    if (options_.rank == 0) tell_holds(server);
    tell_gradients(server, mine[server]);
  }
}

void TableWorker::tell_gradients(uint32_t server, const ServerKeys& mine) {
  const Opened& opened = tables_[table_];
  const size_t dim = opened.spec().dim;
  const size_t most = std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(options_.patience).count();
  PushHead head{.step = opened.steps + 1,
                .version = opened.holders.version(),
                .first = 0,
                .rows = mine.keys.size(),
                .patience_ms = static_cast<uint32_t>(std::min<int64_t>(patience, UINT32_MAX)),
                .lr = opened.spec().optimizer.lr};
  do {  // A rank without gradients says so.
    const size_t count = std::min(most, mine.keys.size() - head.first);
    Bytes message = encode_push(table_, 0, head, std::span(mine.keys).subspan(head.first, count),
                                opened.spec().dim);
    const std::span<float> into = gradients_of(message, count);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(rows_.data() + mine.rows[head.first + i] * dim, dim, into.data() + i * dim);
    links_.questions(server).ask(std::move(message),
                                 counted([](const Status&, MessageKind, BytesView) {}));
    head.first += count;
  } while (head.first < mine.keys.size());
}

Status TableWorker::set_lr(TableNumber table, float lr) {
  TableSpec changed = tables_.at(table).spec();
  changed.optimizer.lr = lr;
  CORRO_TRY(check(changed));
  tables_[table].asked.spec = std::move(changed);
  return {};
}

// -- servers --------------------------------------------------------------------------------------

void TableWorker::hear(uint32_t server, const Header& header, BytesView body) {
  if (header.kind == MessageKind::kLost) {
    const auto lost = decode_lost(body);
    if (!lost.ok() || *lost >= static_cast<uint32_t>(wire::kMostServers)) return;
    const std::string address = *lost < addresses_.size() ? addresses_[*lost] : std::string();
    lose(*lost, fmt::format("server {} ({}) is lost: another rank says so to server {}", *lost,
                            address, server));
  }
  if (header.kind == MessageKind::kHolds)
    if (const auto holds = decode_holds(body); holds.ok()) hear_holds(header.table, *holds);
}

void TableWorker::lose(uint32_t server, const std::string& why) {
  grow(server + 1);
  if (!why_[server].empty()) return;
  lost_[server] = true;
  why_[server] = why;
  for (Opened& opened : tables_) opened.settled = false;
  again_ = true;
  for (uint32_t other = 0; other < lost_.size(); ++other)
    if (!lost_[other]) links_.questions(other).tell_lost(server);
}

void TableWorker::grow(size_t servers) {
  if (servers <= lost_.size()) return;
  lost_.resize(servers, true);
  why_.resize(servers);
  addresses_.resize(servers);
}

void TableWorker::add(uint32_t server, const std::string& address) {
  grow(server + 1);
  if (!lost_[server] || !why_[server].empty()) return;
  lost_[server] = false;
  addresses_[server] = address;
  for (Opened& opened : tables_) opened.settled = false;
  links_.add(server, address);
}

}  // namespace corro::table
