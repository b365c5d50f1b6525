// What a rank has under way between its calls: pushes that were not answered, and rows that were
// asked for ahead.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "table/service/worker.h"

namespace corro::table {
namespace {

/// Of one message's rows: small enough that servers take turns among ranks.
constexpr size_t kMessageBytes = size_t{4} << 20U;
/// Keys that are asked for once more together with a push: servers keep them until it is answered.
constexpr size_t kMostRefreshed = size_t{1} << 20U;

/// Rows of a message.
size_t rows_at_once(uint32_t dim) {
  return std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
}

}  // namespace

uint64_t TableWorker::Opened::least_step() const {
  if (spec().mode == Mode::kAsync) return 0;
  return pushed() - std::min<uint64_t>(pushed(), spec().staleness);
}

// -- all of it ------------------------------------------------------------------------------------

/// Answers that come later are to nobody.
void TableWorker::forget_all() {
  for (uint32_t server = 0; server < lost_.size(); ++server)
    if (!lost_[server]) links_.forget(server);
}

void TableWorker::ask_again() {
  again_ = false;
  forget_all();
  for (size_t table = 0; table < tables_.size(); ++table)
    ask_again(static_cast<TableNumber>(table));
}

void TableWorker::ask_again(TableNumber table) {
  Opened& opened = tables_[table];
  const Status status = check_rows(opened);
  if (!status.ok() && !opened.pushes.empty())
    fail(opened, status.with_context(fmt::format("table {}: push {}", opened.spec().name,
                                                 opened.pushes.front().step)));
  for (PushUnderWay& push : opened.pushes) say_push(table, push);
  std::vector<std::shared_ptr<Fetch>> fetches(opened.prefetched.begin(), opened.prefetched.end());
  if (phase_ == Phase::kPull && table_ == table) fetches.push_back(pulled_);
  for (const auto& fetch : fetches) {
    if (!fetch->arriving()) continue;
    if (status.ok()) {
      ask_fetch(table, fetch, fetch->at_least());
    } else {
      fetch->fail(status);
    }
  }
}

// -- rows -----------------------------------------------------------------------------------------

Status TableWorker::prefetch(TableNumber table, std::span<const uint64_t> ids, size_t most) {
  Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  CORRO_TRY(check_rows(opened).with_context(fmt::format("table {}: prefetch", opened.spec().name)));
  const auto is_same = [ids](const auto& fetch) { return fetch->is_of(ids); };
  if (std::ranges::any_of(opened.prefetched, is_same)) return {};
  auto& prefetched = opened.prefetched;
  prefetched.push_back(std::make_shared<Fetch>(ids, opened.spec().dim));
  ask_fetch(table, prefetched.back(), 0);
  while (prefetched.size() > most) prefetched.pop_front();
  return {};
}

void TableWorker::ask_fetch(TableNumber table, const std::shared_ptr<Fetch>& fetch,
                            uint64_t at_least) {
  fetch->ask(at_least);
  const auto wanted = for_pull(fetch->keys(), tables_[table].holders, lost_);
  for (uint32_t server = 0; server < wanted.size(); ++server)
    ask_rows(table, server, fetch, wanted[server]);
  fetch->end_if_answered();
}

void TableWorker::ask_rows(TableNumber table, uint32_t server, const std::shared_ptr<Fetch>& fetch,
                           const ServerKeys& wanted) {
  const size_t most = rows_at_once(tables_[table].spec().dim);
  const PullHead head{.since = fetch->step().value_or(0), .at_least = fetch->at_least()};
  for (size_t first = 0; first < wanted.keys.size(); first += most) {
    const size_t count = std::min(most, wanted.keys.size() - first);
    const auto rows = std::span(wanted.rows).subspan(first, count);
    fetch->count_question();
    const auto take = [weak = std::weak_ptr(fetch), rows = std::vector(rows.begin(), rows.end())](
                          const Status& status, MessageKind kind, BytesView body) {
      if (const auto asking = weak.lock()) asking->take(status, kind, body, rows);
    };
    links_.questions(server).ask(
        encode_pull(table, 0, head, std::span(wanted.keys).subspan(first, count)), take);
  }
}

/// Until the rows of the pull are there, and new enough.
void TableWorker::go_on_pulling() {
  while (phase_ == Phase::kPull && !pulled_->arriving()) {
    if (!pulled_->failure().ok()) {
      if (!std::exchange(was_prefetched_, false)) return finish(pulled_->failure());
      pulled_ = std::make_shared<Fetch>(pulled_->ids(), tables_[table_].spec().dim);
    }
    const auto step = pulled_->step();
    if (step && *step >= tables_[table_].least_step()) return finish({});
    const Status status = check_rows(tables_[table_]);
    if (!status.ok()) return finish(status.with_context(what_));
    ask_fetch(table_, pulled_, 0);
  }
}

/// With a push that was said just now: the rows that are pulled next, as they are after it.
void TableWorker::refresh_next(TableNumber table) {
  Opened& opened = tables_[table];
  if (opened.prefetched.empty()) return;
  const std::shared_ptr<Fetch>& next = opened.prefetched.front();
  if (!next->step() || next->arriving() || next->keys().size() > kMostRefreshed) return;
  if (*next->step() < opened.least_step()) ask_fetch(table, next, opened.least_step());
}

// -- pushes ---------------------------------------------------------------------------------------

void TableWorker::say_push(TableNumber table, PushUnderWay& push) {
  push.unanswered = 0;
  const Holders& holders = tables_[table].holders;
  push.version = holders.version();
  const std::vector<ServerKeys> mine = for_push(push.keys, holders, lost_);
  for (const auto& [server, shards] : holders.servers()) {
    if (lost_[server]) continue;
    if (options_.rank == 0) tell_holds(table, server);
    say_gradients(table, server, push, mine[server]);
  }
}

void TableWorker::say_gradients(TableNumber table, uint32_t server, PushUnderWay& push,
                                const ServerKeys& mine) {
  const Opened& opened = tables_[table];
  const size_t dim = opened.spec().dim;
  const size_t most = rows_at_once(opened.spec().dim);
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(options_.patience).count();
  PushHead head{.step = push.step,
                .version = push.version,
                .first = 0,
                .rows = mine.keys.size(),
                .patience_ms = static_cast<uint32_t>(std::min<int64_t>(patience, UINT32_MAX)),
                .lr = push.lr};
  do {  // A rank without gradients says so.
    const size_t count = std::min(most, mine.keys.size() - head.first);
    Bytes message = encode_push(table, 0, head, std::span(mine.keys).subspan(head.first, count),
                                opened.spec().dim);
    const std::span<float> into = gradients_of(message, count);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(push.sums.data() + mine.rows[head.first + i] * dim, dim, into.data() + i * dim);
    ++push.unanswered;
    links_.questions(server).ask(
        std::move(message),
        [this, table, step = push.step](const Status& status, MessageKind, BytesView) {
          hear_pushed(table, step, status);
        });
    head.first += count;
  } while (head.first < mine.keys.size());
}

void TableWorker::hear_pushed(TableNumber table, uint64_t step, const Status& status) {
  Opened& opened = tables_[table];
  const auto found = std::ranges::find(opened.pushes, step, &PushUnderWay::step);
  if (found == opened.pushes.end()) return;
  if (!status.ok()) return fail(opened, status);
  --found->unanswered;
  while (!opened.pushes.empty() && opened.pushes.front().unanswered == 0) {
    opened.known = std::max(opened.known, opened.pushes.front().version);
    opened.pushes.pop_front();
    ++opened.steps;
  }
  if (options_.rank == 0) find_unneeded();
}

/// What the servers have of its pushes is not known any more.
void TableWorker::fail(Opened& opened, const Status& why) {
  opened.broken = why;
  opened.pushes.clear();
  opened.prefetched.clear();
  again_ = true;  // To forget what was asked about it.
}

}  // namespace corro::table
