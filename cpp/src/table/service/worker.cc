#include "table/service/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "wire/server_number.h"

namespace corro::table {

TableWorker::TableWorker(const Options& options, Links& links)
    : options_(options),
      links_(links),
      lost_(options.servers.size()),
      why_(options.servers.size()),
      leaving_(options.servers.size()),
      unneeded_(options.servers.size()),
      addresses_(options.servers) {}

// -- rounds ---------------------------------------------------------------------------------------

void TableWorker::begin(TableNumber table, Phase phase, const std::string& call) {
  table_ = table;
  what_ = fmt::format("table {}: {}", tables_[table].spec().name, call);
  phase_ = phase;
  failure_ = stopped_ = result_ = {};
  unanswered_ = 0;
  if (again_) ask_again();
  ask();
}

void TableWorker::proceed() {
  do {
    if (phase_ != Phase::kIdle && !stopped_.ok()) finish(stopped_);
    if (!failure_.ok() || again_) overcome();
  } while (next_round());
}

/// A server was lost, or refuses, or the rows of a push under way belong to others by now.
void TableWorker::overcome() {
  const bool moving = phase_ == Phase::kExport || phase_ == Phase::kImport;
  if (!failure_.ok() && !moving) return finish(failure_);
  if (!failure_.ok()) {  // It would be refused again.
    tables_[table_].moves = false;
    note_uncopied(std::string(failure_.message()));
  }
  failure_ = {};
  // Parts of two rounds would mix in the folder, whose name is not the worker's to choose.
  if (phase_ == Phase::kSave && !saves_alone_)
    return finish({Code::kUnavailable, "a server was lost as the checkpoint began"});
  ask_again();
  const bool asks_servers = phase_ == Phase::kOpen || phase_ == Phase::kSave ||
                            phase_ == Phase::kLoad || phase_ == Phase::kAdopt;
  if (!moving && !asks_servers) return;
  if (moving) phase_ = Phase::kPush;
  if (phase_ == Phase::kAdopt) phase_ = Phase::kLoad;
  unanswered_ = 0;
  ask();
}

void TableWorker::ask() {
  // A server that is lost may have written its part of a snapshot.
  const Status status = phase_ == Phase::kWaitForSave ? Status() : check_rows(tables_[table_]);
  if (!status.ok()) return finish(status.with_context(what_));
  switch (phase_) {
    case Phase::kOpen:
      return ask_open();
    case Phase::kExport:
      return ask_export();
    case Phase::kImport:
      return ask_import();
    case Phase::kPush:
      return begin_push();
    case Phase::kSave:
      return ask_save();
    case Phase::kLoad:
      return ask_load();
    case Phase::kAdopt:
      return ask_adopt();
    case Phase::kWaitForSave:
    case Phase::kPull:
    case Phase::kSettle:
    case Phase::kWait:
    case Phase::kIdle:
      return;  // What they wait for was asked before, or is asked then.
  }
}

/// Goes on if what the phase waits for is there. False: it is not.
bool TableWorker::next_round() {
  switch (phase_) {
    case Phase::kIdle:
      return false;
    case Phase::kPull:
      go_on_pulling();
      return false;
    case Phase::kSettle:
    case Phase::kPush:
    case Phase::kWait:
      return next_after_pushes();
    case Phase::kWaitForSave:
      if (is_writing(table_)) return false;
      finish({});
      return true;
    case Phase::kOpen:
    case Phase::kExport:
    case Phase::kImport:
    case Phase::kSave:
    case Phase::kLoad:
    case Phase::kAdopt:
      return unanswered_ == 0 && next_after_answers();
  }
  return false;
}

bool TableWorker::next_after_answers() {
  switch (phase_) {
    case Phase::kOpen:
      finish_open();
      return true;
    case Phase::kSave:
      finish({});
      return true;
    case Phase::kAdopt:
      adopt_steps(table_, loaded_steps(table_));
      finish({});
      return true;
    case Phase::kLoad:
      if (!adopts_) {
        finish({});
        return true;
      }
      phase_ = Phase::kAdopt;
      break;
    case Phase::kExport:
      phase_ = Phase::kImport;
      break;
    default:  // kImport
      phase_ = wanted_.from == 0 ? Phase::kPush : Phase::kExport;
      if (phase_ == Phase::kPush) finish_move();
  }
  ask();
  return true;
}

bool TableWorker::next_after_pushes() {
  const Opened& opened = tables_[table_];
  const size_t most = phase_ == Phase::kPush ? opened.spec().staleness : 0;
  if (opened.broken.ok() && opened.pushes.size() > most) return false;
  if (!opened.broken.ok() || phase_ != Phase::kSettle) {
    finish(opened.broken);
    return true;
  }
  if (saves_) {
    phase_ = Phase::kSave;
  } else {
    phase_ = choose_move() ? Phase::kExport : Phase::kPush;
  }
  ask();
  return true;
}

void TableWorker::finish(const Status& status) {
  const bool is_waiting = unanswered_ > 0 || (phase_ == Phase::kPull && pulled_->arriving());
  if (phase_ == Phase::kPush && !status.ok() && tables_[table_].broken.ok())
    fail(tables_[table_], status);
  if (phase_ == Phase::kSave && !status.ok()) tables_[table_].saving.reset();
  if (phase_ == Phase::kOpen && !status.ok()) tables_.pop_back();
  phase_ = Phase::kIdle;
  result_ = status;
  failure_ = {};
  unanswered_ = 0;
  if (is_waiting || again_) ask_again();
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
  // What admission and a budget count is of all rows of a server, and cannot be copied with some;
  // and in async mode rows never stand still.
  const Retention& retention = spec.retention;
  const bool moves = retention.least_pushes <= 1 &&
                     (retention.most_bytes == 0 || !retention.spill.empty()) &&
                     spec.mode != Mode::kAsync;
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

// -- pull, push and wait --------------------------------------------------------------------------

Status TableWorker::start_pull(TableNumber table, std::span<const uint64_t> ids) {
  Opened& opened = tables_.at(table);
  // A push that found no memory, or a full disk, has changed no row of the server that says so.
  if (opened.broken.code() != Code::kResourceExhausted) CORRO_TRY(opened.broken);
  const auto found = std::ranges::find_if(opened.prefetched,
                                          [ids](const auto& fetch) { return fetch->is_of(ids); });
  was_prefetched_ = found != opened.prefetched.end();
  if (was_prefetched_) {
    pulled_ = *found;
    opened.prefetched.erase(found);
  } else {
    pulled_ = std::make_shared<Fetch>(ids, opened.spec().dim);
  }
  begin(table, Phase::kPull, "pull");
  return {};
}

Status TableWorker::start_push(TableNumber table, std::span<const uint64_t> ids,
                               std::span<const float> gradients) {
  const Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  CORRO_TRY(check_finite(opened.spec(), ids, gradients));
  DistinctKeys keys = distinct(ids);
  std::vector<float> sums = table::add_up(keys, gradients, opened.spec().dim);
  push_ = {.step = opened.pushed() + 1,
           .keys = std::move(keys.keys),
           .sums = std::move(sums),
           .lr = opened.spec().optimizer.lr};
  table_ = table;
  Phase phase = Phase::kPush;
  saves_ = false;
  if (choose_move()) phase = opened.pushes.empty() ? Phase::kExport : Phase::kSettle;
  begin(table, phase, fmt::format("push {}", push_.step));
  return {};
}

void TableWorker::begin_push() {
  auto& pushes = tables_[table_].pushes;
  pushes.push_back(std::move(push_));
  say_push(table_, pushes.back());
  refresh_next(table_);
  if (options_.rank == 0) release_servers();
}

Status TableWorker::start_wait(TableNumber table) {
  CORRO_TRY(tables_.at(table).broken);
  begin(table, Phase::kWait, "wait");
  return {};
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
  if (header.kind == MessageKind::kSaved)
    if (const auto saved = decode_saved(body); saved.ok()) hear_saved(server, header.table, *saved);
  if (header.kind == MessageKind::kLeaving) hear_leaving(server);
}

void TableWorker::lose(uint32_t server, const std::string& why) {
  grow(server + 1);
  if (!why_[server].empty()) return;
  lost_[server] = true;
  why_[server] = why;
  for (Opened& opened : tables_) opened.settled = false;
  give_up_parts(server);
  note_uncopied("tables with admit_after or budget are not copied");
  again_ = true;
  for (uint32_t other = 0; other < lost_.size(); ++other)
    if (!lost_[other]) links_.questions(other).tell_lost(server);
}

void TableWorker::grow(size_t servers) {
  if (servers <= lost_.size()) return;
  lost_.resize(servers, true);
  why_.resize(servers);
  leaving_.resize(servers);
  unneeded_.resize(servers);
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
