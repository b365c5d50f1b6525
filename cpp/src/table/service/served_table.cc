#include "table/service/served_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace corro::table {
namespace {

constexpr size_t kNamedRanks = 3;

}  // namespace

Result<std::unique_ptr<ServedTable>> ServedTable::create(const Open& open, size_t shards,
                                                         MemoryGuard* guard) {
  CORRO_ASSIGN(auto rows, LocalTable::create(open.spec));
  return std::unique_ptr<ServedTable>(new ServedTable(std::move(rows), open, shards, guard));
}

Status ServedTable::open(const Open& open) const {
  CORRO_TRY(check_alike(open.spec, spec()));
  if (open.replicas != replicas_) {
    return {Code::kInvalidArgument, fmt::format("table {}: replicas is {} here and {} there",
                                                spec().name, open.replicas, replicas_)};
  }
  if (open.ranks == pushed_.size()) return {};
  return {Code::kFailedPrecondition,
          fmt::format("table {}: {} ranks use it, and rank {} says that there are {}", spec().name,
                      pushed_.size(), open.rank, open.ranks)};
}

Status ServedTable::refuse(uint32_t rank, const PushHead& head, std::string_view why) const {
  return {Code::kFailedPrecondition,
          fmt::format("table {}: rank {} pushes step {}: {}", spec().name, rank, head.step, why)};
}

Result<ServedTable::RankPush*> ServedTable::find(uint32_t rank, const PushHead& head) {
  const uint64_t ahead = head.step - steps_of(rank) - 1;
  const uint64_t most = is_async() ? 0 : spec().staleness;
  if (ahead > most)
    return refuse(rank, head, fmt::format("the next one is {}", steps_of(rank) + 1));
  while (upcoming_.size() <= ahead) upcoming_.emplace_back(pushed_.size());
  return &upcoming_[ahead].at(rank);
}

Status ServedTable::check_part(const RankPush& known, uint32_t rank, const Push& push) const {
  const PushHead& head = push.head;
  if (known.keys.empty() && head.first == 0) return {};
  if (head.rows != known.rows) return refuse(rank, head, "its parts differ in the number of rows");
  if (head.first + push.keys.size() <= known.keys.size()) return {};
  if (head.first != known.keys.size()) return refuse(rank, head, "a part of it is missing");
  const bool follows =
      push.keys.empty() || known.keys.empty() || push.keys.front() > known.keys.back();
  return follows ? Status() : refuse(rank, head, "its keys do not ascend");
}

Status ServedTable::check_size(uint32_t rank, const Push& push) const {
  const size_t row_bytes = sizeof(uint64_t) + spec().dim * sizeof(float);
  const size_t most = kMaxPushBytes / row_bytes;
  size_t kept = 0;  // Of other steps, as long as nothing of this one has come.
  for (const Step& step : upcoming_) kept += step[rank].rows;
  if (push.head.rows <= most && (push.head.first > 0 || kept <= most - push.head.rows)) return {};
  return {Code::kResourceExhausted,
          fmt::format("table {}: rank {} pushes {} rows at once; {} are the most", spec().name,
                      rank, push.head.rows, most)};
}

Result<ServedTable::Taken> ServedTable::take(uint32_t rank, const Push& push) {
  if (push.head.step <= steps_of(rank)) return Taken::kOld;
  CORRO_ASSIGN(RankPush* const found, find(rank, push.head));
  RankPush& known = *found;
  if (push.head.version < known.version) return Taken::kStale;
  if (push.head.version > known.version) {
    known = {};
    known.version = push.head.version;
  }
  CORRO_TRY(check_part(known, rank, push));
  const size_t end = push.head.first + push.keys.size();
  const bool is_last = end == push.head.rows;
  if (known.whole) return is_last ? Taken::kWhole : Taken::kPart;
  if (end <= known.keys.size() && end > 0) return Taken::kPart;  // It has come before.
  CORRO_TRY(check_size(rank, push));
  if (push.head.first == 0) {
    known.rows = push.head.rows;
    known.lr = push.head.lr;
  }
  known.keys.insert(known.keys.end(), push.keys.begin(), push.keys.end());
  known.gradients.insert(known.gradients.end(), push.gradients.begin(), push.gradients.end());
  if (!is_last) return Taken::kPart;
  known.whole = true;
  return Taken::kWhole;
}

Status ServedTable::check_rates() const {
  for (size_t rank = 1; rank < next().size(); ++rank) {
    if (next()[rank].lr == next()[0].lr) continue;
    return {Code::kInvalidArgument,
            fmt::format("table {}: rank 0 pushes step {} with lr {}, and rank {} with {}",
                        spec().name, steps_ + 1, next()[0].lr, rank, next()[rank].lr)};
  }
  return {};
}

bool ServedTable::ready() const {
  if (is_async()) return std::ranges::any_of(next(), &RankPush::whole);
  const uint64_t version = next().front().version;
  return std::ranges::all_of(
      next(), [version](const RankPush& push) { return push.whole && push.version == version; });
}

uint64_t ServedTable::last_version() const {
  return std::ranges::max(next(), {}, &RankPush::version).version;
}

Status ServedTable::apply() {
  if (is_async()) {
    Step& pushes = upcoming_.front();
    const auto whole = std::ranges::find(pushes, true, &RankPush::whole);
    const Status status = take_alone(*whole);
    if (status.ok()) ++pushed_[static_cast<size_t>(whole - pushes.begin())];
    *whole = {};
    return status;
  }
  const Status status = take_step();
  if (status.ok()) {
    forget_others(last_version());
    upcoming_.pop_front();
  } else {
    upcoming_.clear();  // They were to follow that one.
  }
  if (upcoming_.empty()) upcoming_.emplace_back(pushed_.size());
  return status;
}

Status ServedTable::take_step() {
  CORRO_TRY(check_rates());
  if (next().size() == 1) return take_alone(upcoming_.front()[0]);
  CORRO_TRY(rows_->set_lr(next()[0].lr));
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
  add_up(keys, gradients);
  CORRO_TRY(push_rows(keys, gradients));
  finish_step(std::move(keys));
  return {};
}

Status ServedTable::take_alone(RankPush& push) {
  CORRO_TRY(rows_->set_lr(push.lr));
  CORRO_TRY(push_rows(push.keys, push.gradients));
  finish_step(std::move(push.keys));
  return {};
}

/// Rows that go by themselves change, too, and are no keys of a step.
void ServedTable::finish_step(std::vector<uint64_t> changed) {
  ++steps_;
  stepped_ = true;
  if (spec().retention.lets_rows_go()) return changes_.forget(steps_);
  changes_.add(steps_, std::move(changed));
}

Status ServedTable::push_rows(std::span<const uint64_t> keys, std::span<const float> gradients) {
  if (guard_ != nullptr) CORRO_TRY(guard_->check(*rows_, keys));
  if (snapshot_) CORRO_TRY(snapshot_->keep(keys));
  since_saves_.note(keys);
  return rows_->push(keys, gradients, steps_ + 1);
}

/// Before a step of the version in which this server ceased to hold a shard, a rank may still pull
/// the shard's rows from here.
void ServedTable::forget_others(uint64_t version) {
  if (!forgets_ || version < version_ || snapshot_) return;
  rows_->forget([this](uint64_t key) { return !held_->test(shard_of(key, shards_)); });
  forgets_ = false;
  changes_.forget(steps_);
}

void ServedTable::hold(uint64_t version, const ShardSet& shards) {
  const bool fewer = !held_ || (*held_ & ~shards).any();
  forgets_ = forgets_ || fewer;
  version_ = version;
  held_ = shards;
}

Result<Bytes> ServedTable::pack(const Export& wanted) const {
  std::vector<uint64_t> keys = rows_->keys_with_rows([&](uint64_t key) {
    return key >= wanted.from && wanted.shards.test(shard_of(key, shards_));
  });
  const size_t row_bytes = rows_->packed_bytes();
  const size_t most = std::max<size_t>(
      1, std::min<size_t>(wanted.most_bytes, kMaxBodyBytes / 2) / (sizeof(uint64_t) + row_bytes));
  PackedRows packed{.steps = steps_,
                    .more = keys.size() > most,
                    .row_bytes = static_cast<uint32_t>(row_bytes),
                    .keys = {},
                    .rows = {}};
  keys.resize(std::min(keys.size(), most));
  packed.keys = keys;
  Bytes body = encode_packed(packed);
  CORRO_TRY(rows_->pack(keys, rows_of(body, packed)));
  return body;
}

Status ServedTable::unpack(const PackedRows& rows) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("table {}: rows cannot be taken over: {}", spec().name, why));
  };
  if (rows.row_bytes != rows_->packed_bytes())
    return refuse(
        fmt::format("a row has {} bytes here and {} there", rows_->packed_bytes(), rows.row_bytes));
  if (stepped_ && rows.steps != steps_)
    return refuse(fmt::format("{} steps here and {} there", steps_, rows.steps));
  // What it has is of an import that was given up.
  if (!stepped_ && rows.steps != steps_) rows_->forget([](uint64_t) { return true; });
  if (guard_ != nullptr) CORRO_TRY(guard_->check(*rows_, rows.keys));
  if (snapshot_) CORRO_TRY(snapshot_->keep(rows.keys));
  since_saves_.note(rows.keys);
  CORRO_TRY(rows_->unpack(rows.keys, rows.rows, rows.steps));
  steps_ = rows.steps;
  changes_.forget(steps_);  // What earlier steps have changed of these rows.
  return {};
}

// -- snapshots ------------------------------------------------------------------------------------

void ServedTable::begin_snapshot(const Save& save) {
  std::shared_ptr<const ChangedKeys> changed;
  if (save.counts) {
    const auto base = save.base ? std::optional(save.base->step) : std::nullopt;
    changed = since_saves_.begin_save(steps_, rows_->stats().rows, base);
  } else {
    since_saves_.stop();
  }
  snapshot_.emplace(*rows_, save.shards, steps_, shards_, std::move(changed));
}

Result<std::optional<Bytes>> ServedTable::next_page(size_t most_bytes) {
  if (!snapshot_) return std::optional<Bytes>();
  CORRO_ASSIGN(auto page, snapshot_->next(most_bytes));
  if (!page) snapshot_.reset();
  return page;
}

bool ServedTable::has_to_hand_out() const {
  return snapshot_ && (spec().retention.lets_rows_go() || snapshot_->is_full());
}

void ServedTable::adopt(std::unique_ptr<LocalTable> rows, uint64_t steps) {
  snapshot_.reset();
  since_saves_.stop();
  rows_ = std::move(rows);
  steps_ = steps;
  stepped_ = true;
  changes_ = {};
  changes_.forget(steps_);
  upcoming_.clear();
  upcoming_.emplace_back(pushed_.size());
}

/// Merges the ranks' ascending keys. The gradients of a key that several have are added to those of
/// the first one, in the order of the ranks.
void ServedTable::add_up(std::vector<uint64_t>& keys, std::vector<float>& gradients) const {
  const size_t dim = spec().dim;
  for (const RankPush& push : next()) keys.insert(keys.end(), push.keys.begin(), push.keys.end());
  std::ranges::sort(keys);
  const auto rest = std::ranges::unique(keys);
  keys.erase(rest.begin(), rest.end());
  gradients.assign(keys.size() * dim, 0.0F);
  std::vector<bool> seen(keys.size());
  for (const RankPush& push : next()) {
    size_t at = 0;
    for (size_t i = 0; i < push.keys.size(); ++i) {
      while (keys[at] != push.keys[i]) ++at;
      const float* from = push.gradients.data() + i * dim;
      float* into = gradients.data() + at * dim;
      if (seen[at]) {
        for (size_t j = 0; j < dim; ++j) into[j] += from[j];
      } else {
        std::copy_n(from, dim, into);  // Not 0 + x: that would make a 0 of -0.
        seen[at] = true;
      }
    }
  }
}

std::string ServedTable::describe_missing() const {
  std::vector<size_t> missing;
  for (size_t rank = 0; rank < next().size(); ++rank)
    if (!next()[rank].whole || next()[rank].version < last_version()) missing.push_back(rank);
  const size_t named = std::min(missing.size(), kNamedRanks);
  std::string text = missing.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < named; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > named) text += fmt::format(" and {} more", missing.size() - named);
  return text;
}

}  // namespace corro::table
