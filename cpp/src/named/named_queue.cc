#include "named/named_queue.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/operation/request.h"
#include "named/difference.h"

namespace corro::named {
namespace {

Status out_of_step(std::string_view what) {
  return {Code::kInternal, fmt::format("named operations: the leader {}", what)};
}

}  // namespace

Status NamedQueue::submit(NamedEntry entry, uint64_t token, Time now) {
  if (join_.active() || missed_join_) {
    return {Code::kFailedPrecondition,
            fmt::format("named operation \"{}\": this rank has joined, and submits nothing more "
                        "until every rank has",
                        entry.name)};
  }
  CORRO_TRY(accept(std::move(entry), token, now));
  return accept_next();
}

/// Also takes in what was submitted before this rank joined, and had to wait.
Status NamedQueue::accept(NamedEntry entry, uint64_t token, Time now) {
  if (entry.name.empty() || entry.name.size() > kMaxOperationName) {
    return {Code::kInvalidArgument, fmt::format("named operation: a name has 1 to {} bytes, not {}",
                                                kMaxOperationName, entry.name.size())};
  }
  const auto [found, added] = pending_.try_emplace(entry.name);
  Pending& pending = found->second;
  if (!added) {
    if (!pending.withdrawn || after_.contains(entry.name)) {
      return {Code::kAlreadyExists,
              fmt::format("named operation \"{}\" has been submitted and has not run yet; use "
                          "another name or wait for it",
                          entry.name)};
    }
    if (!same(pending.entry, entry)) {
      std::string name = entry.name;
      after_[std::move(name)].push_back({std::move(entry), token, now});
      return {};
    }
    pending.withdrawn = false;
    pending.token = token;
    pending.missing.reset();
    return {};
  }
  pending.entry = std::move(entry);
  pending.token = token;
  pending.since = now;
  pending.sequence = next_sequence_++;
  by_sequence_.emplace_hint(by_sequence_.end(), pending.sequence, &pending);
  place(pending);
  return {};
}

/// Takes in submissions that waited for others of their names.
Status NamedQueue::accept_next() {
  for (auto after = after_.begin(); after != after_.end();) {
    if (pending_.contains(after->first)) {
      ++after;
      continue;
    }
    After next = std::move(after->second.front());
    after->second.pop_front();
    if (after->second.empty()) after_.erase(after);
    CORRO_TRY(accept(std::move(next.entry), next.token, next.since));
    after = after_.begin();  // Operations that started have made other names free.
  }
  return {};
}

void NamedQueue::place(Pending& pending) {
  if (!planned()) {
    to_announce_.push_back(pending.entry.name);
  } else if (!plan_->frozen()) {
    follow(pending);
  }
}

void NamedQueue::follow(Pending& pending) {
  const auto index = plan_->find(pending.entry.name);
  if (!index || !same(plan_->entry(*index), pending.entry) || !plan_->take_turn(*index)) {
    leave();
    return;
  }
  pending.planned = true;
  plan_->add(*index);
  start_planned();
}

void NamedQueue::leave() {
  if (plan_->frozen()) return;
  plan_->freeze();
  outbox_.push_back(encode(Announcement{
      .kind = Announcement::Kind::kFrozen, .mode = mode_, .started = plan_->next_op()}));
}

void NamedQueue::start_planned() {
  while (const auto op = plan_->take_start()) {
    const PlannedBucket& bucket = plan_->bucket(*op);
    NamedStart start{.lane = NamedLane::kPlanned, .op = *op, .as_one = bucket.as_one, .parts = {}};
    PlannedStart& started = planned_starts_.emplace_back(PlannedStart{*op, {}});
    for (const BucketPart& part : bucket.parts) {
      auto pending = take_pending(plan_->entry(part.index).name);
      CORRO_CHECK(pending.has_value(), "a bucket that is not full starts", *op);
      start.parts.push_back({pending->token, part.offset_bytes});
      started.parts.push_back(*std::move(pending));
    }
    starts_.push_back(std::move(start));
  }
}

void NamedQueue::retire_planned(uint64_t below) {
  while (!planned_starts_.empty() && planned_starts_.front().op < below)
    planned_starts_.pop_front();
}

/// What this member has started from there on is pending again, before what it has not started.
void NamedQueue::take_back(uint64_t from, uint64_t resume) {
  std::vector<Pending> all;
  NamedStart back{
      .lane = NamedLane::kPlanned, .op = from, .as_one = {}, .parts = {}, .resume = resume};
  for (; !planned_starts_.empty() && planned_starts_.back().op >= from;
       planned_starts_.pop_back()) {
    for (Pending& pending : planned_starts_.back().parts) {
      back.parts.push_back({pending.token, 0});
      all.push_back(std::move(pending));
    }
  }
  std::erase_if(starts_, [from](const NamedStart& start) {
    return start.lane == NamedLane::kPlanned && !start.resume && start.op >= from;
  });
  if (from < resume) starts_.push_back(std::move(back));
  for (auto& [name, pending] : pending_) all.push_back(std::move(pending));
  pending_.clear();
  by_sequence_.clear();
  std::ranges::sort(all, {}, &Pending::sequence);
  for (Pending& pending : all) {
    if (!pending.withdrawn) announce_again(std::move(pending));
  }
}

void NamedQueue::announce_again(Pending pending) {
  const std::string name = pending.entry.name;
  const auto [found, added] = pending_.try_emplace(name);
  if (!added) {  // Submitted again after the first had started.
    after_[name].push_back({std::move(pending.entry), pending.token, pending.since});
    return;
  }
  pending.announced = pending.doubted = pending.planned = false;
  pending.missing.reset();
  found->second = std::move(pending);
  by_sequence_.emplace(found->second.sequence, &found->second);
  to_announce_.push_back(name);
}

std::optional<NamedQueue::Pending> NamedQueue::take_pending(const std::string& name) {
  const auto found = pending_.find(name);
  if (found == pending_.end()) return std::nullopt;
  std::optional<Pending> pending = std::move(found->second);
  by_sequence_.erase(pending->sequence);
  pending_.erase(found);
  return pending;
}

std::vector<std::string> NamedQueue::names_in_order() const {
  std::vector<std::string> names;
  for (const auto& [sequence, pending] : by_sequence_) names.push_back(pending->entry.name);
  return names;
}

void NamedQueue::fail(std::vector<uint64_t> tokens, Status status) {
  failures_.push_back({.tokens = std::move(tokens), .status = std::move(status), .cancelled = {}});
}

void NamedQueue::withdraw(const std::string& name, uint64_t token) {
  if (const auto after = after_.find(name); after != after_.end()) {
    const auto is_it = [token](const After& each) { return each.token == token; };
    if (std::erase_if(after->second, is_it) > 0) {
      if (after->second.empty()) after_.erase(after);
      return;
    }
  }
  const auto found = pending_.find(name);
  if (found == pending_.end() || found->second.token != token) return;
  Pending& pending = found->second;
  if (pending.announced) {
    pending.withdrawn = pending.doubted = true;
    say(Announcement::Kind::kWithdraw, pending);
  } else if (pending.planned) {
    pending.withdrawn = true;  // Until CUT.
    leave();
  } else {
    (void)take_pending(std::string(name));
    const Status taken = accept_next();
    CORRO_CHECK(taken.ok(), taken.message());
  }
}

void NamedQueue::withdraw(uint64_t token) {
  const auto is_it = [token](const auto& item) { return item.second.token == token; };
  const auto pending = std::ranges::find_if(pending_, is_it);
  if (pending != pending_.end()) return withdraw(std::string(pending->first), token);
  for (const auto& [name, waiting] : after_) {
    if (std::ranges::any_of(waiting, [token](const After& each) { return each.token == token; }))
      return withdraw(std::string(name), token);
  }
}

void NamedQueue::say(Announcement::Kind kind, const Pending& pending) {
  outbox_.push_back(
      encode(Announcement{.kind = kind, .mode = mode_, .ready = {cache_.refer(pending.entry)}}));
}

void NamedQueue::ask(const std::string& name) {
  const auto found = pending_.find(name);
  if (found == pending_.end() || !found->second.announced) return;
  say(Announcement::Kind::kWaiting, found->second);
}

void NamedQueue::hurry(const std::string& name) {
  if (planned() && pending_.contains(name)) leave();
}

Time NamedQueue::next_check() const {
  if (!planned() || plan_->frozen() || pending_.empty()) return Time::never();
  return by_sequence_.begin()->second->since + options_.patience;
}

void NamedQueue::check_patience(Time now) {
  if (next_check() <= now) leave();
}

Status NamedQueue::receive(BytesView decision) {
  CORRO_TRY(take_in(decision));
  return accept_next();
}

Status NamedQueue::take_in(BytesView decision) {
  CORRO_ASSIGN(const Decision message, decode_decision(decision));
  const bool changes =
      message.kind == Decision::Kind::kEngage || message.kind == Decision::Kind::kCut;
  if (message.mode != mode_ + (changes ? 1 : 0)) return out_of_step("is in another mode");
  const bool in_plan =
      message.kind == Decision::Kind::kFreeze || message.kind == Decision::Kind::kCut;
  if (in_plan != planned()) {
    return out_of_step(planned() ? "negotiates inside a plan" : "ends a plan that nobody follows");
  }
  switch (message.kind) {
    case Decision::Kind::kRun:
      return receive_run(message);
    case Decision::Kind::kFail:
      return receive_fail(message);
    case Decision::Kind::kStalled:
      if (const auto found = pending_.find(message.name); found != pending_.end()) {
        found->second.missing = message.missing;
        found->second.missing_more = message.missing_more;
      }
      return {};
    case Decision::Kind::kPropose:
      return receive_propose(message);
    case Decision::Kind::kEngage:
      return receive_engage(message);
    case Decision::Kind::kFreeze:
      leave();
      return {};
    case Decision::Kind::kCut:
      return receive_cut(message);
    case Decision::Kind::kWithdrawn:
      return receive_withdrawn(message);
    case Decision::Kind::kJoined:
      return receive_joined(message);
    case Decision::Kind::kOver:
      return receive_over(message);
  }
  return {};
}

Status NamedQueue::check_announced(const NamedEntry& entry, const Decision& decision) const {
  const auto found = pending_.find(entry.name);
  if (found != pending_.end() && found->second.announced && same(found->second.entry, entry))
    return {};
  const bool without_this = found == pending_.end() && decision.absent > 0 &&
                            join_.state == MemberJoin::State::kJoined &&
                            entry.op.signature.kind == OpKind::kAllreduce &&
                            entry.op.signature.count <= collective::kMostElements;
  if (without_this) return {};
  return out_of_step(fmt::format("runs \"{}\" as nobody here announced it", entry.name));
}

Status NamedQueue::receive_run(const Decision& decision) {
  std::vector<NamedEntry> entries;
  std::vector<Fusible> list;
  for (const NamedRef& ref : decision.run) {
    CORRO_ASSIGN(NamedEntry entry, cache_.resolve(ref));
    CORRO_TRY(check_announced(entry, decision));
    const uint32_t number = cache_.learn(entry);
    if (const auto found = pending_.find(entry.name); found != pending_.end())
      history_.push_back({number, found->second.sequence});
    list.push_back(entry.op);
    entries.push_back(std::move(entry));
  }
  while (history_.size() > 2 * RoundFinder::kMaxRound) history_.pop_front();
  for (const Bucket& bucket : fuse(list, decision.fusion))
    CORRO_TRY(start_bucket(bucket, entries, decision.absent));
  return {};
}

Status NamedQueue::start_bucket(const Bucket& bucket, const std::vector<NamedEntry>& entries,
                                int32_t absent) {
  NamedStart start{.lane = NamedLane::kOrdered,
                   .op = next_op_++,
                   .as_one = bucket.as_one,
                   .parts = {},
                   .absent = absent};
  std::vector<uint64_t> tokens;
  std::string withdrawn;
  for (const BucketPart& part : bucket.parts) {
    const std::string& name = entries[part.index].name;
    const auto pending = take_pending(name);
    if (!pending) {
      if (absent == 0 || !join_.active()) {
        return out_of_step(fmt::format("runs \"{}\" twice", name));
      }
      start.gives_identity = true;
      if (start.name.empty()) start.name = name;
    } else if (pending->withdrawn) {
      withdrawn = name;
    } else {
      tokens.push_back(pending->token);
      start.parts.push_back({pending->token, part.offset_bytes});
    }
  }
  if (withdrawn.empty()) {
    starts_.push_back(std::move(start));
    return {};
  }
  Status status(
      Code::kDeadlineExceeded,
      fmt::format("named operation \"{}\": given up by a rank before its peers were ready",
                  withdrawn));
  failures_.push_back(
      {.tokens = std::move(tokens), .status = std::move(status), .cancelled = start.op});
  return {};
}

Status NamedQueue::receive_fail(const Decision& decision) {
  const auto pending = take_pending(decision.name);
  if (!pending) {
    if (join_.state == MemberJoin::State::kJoined) return {};
    return out_of_step(fmt::format("fails \"{}\" that nobody here announced", decision.name));
  }
  if (pending->withdrawn) return {};
  const bool joined = decision.cause == FailCause::kJoined;
  FailureDetail detail{.rank = decision.rank,
                       .op = std::string(name_of(pending->entry.op.signature.kind)),
                       .phase = joined ? "join" : "negotiate"};
  fail({pending->token}, Status(joined ? Code::kFailedPrecondition : Code::kInvalidArgument,
                                decision.text, std::move(detail)));
  return {};
}

Status NamedQueue::receive_propose(const Decision& decision) {
  const auto order = local_order(decision);
  proposed_.reset();
  if (order) {
    std::vector<NamedEntry> entries;
    std::vector<size_t> lengths;
    for (const auto& segment : decision.segments) {
      lengths.push_back(segment.size());
      for (const uint32_t number : segment) entries.push_back(*cache_.entry(number));
    }
    proposed_ = std::make_unique<FollowedPlan>(decision.plan, std::move(entries), lengths,
                                               decision.fusion, *order);
  }
  outbox_.push_back(
      encode(Announcement{.kind = order ? Announcement::Kind::kAccept : Announcement::Kind::kRefuse,
                          .mode = mode_,
                          .plan = decision.plan}));
  return {};
}

/// Returns the order in which this rank submitted the proposed round, or nothing if its last two
/// rounds were not submitted in one and the same order, one after the other.
std::optional<std::vector<uint32_t>> NamedQueue::local_order(const Decision& decision) const {
  std::unordered_map<uint32_t, uint32_t> index_of;
  for (const auto& segment : decision.segments) {
    for (const uint32_t number : segment) {
      if (cache_.entry(number) == nullptr) return std::nullopt;
      if (!index_of.emplace(number, static_cast<uint32_t>(index_of.size())).second) {
        return std::nullopt;
      }
    }
  }
  const size_t length = index_of.size();
  if (length == 0 || history_.size() < 2 * length) return std::nullopt;
  const auto by_sequence = [](const Ordered& a, const Ordered& b) {
    return a.sequence < b.sequence;
  };
  std::vector<Ordered> rounds(history_.end() - static_cast<std::ptrdiff_t>(2 * length),
                              history_.end());
  std::sort(rounds.begin(), rounds.end(), by_sequence);
  std::vector<uint32_t> order;
  for (size_t i = 0; i < length; ++i) {
    const auto index = index_of.find(rounds[i].number);
    if (rounds[i].number != rounds[i + length].number || index == index_of.end()) {
      return std::nullopt;
    }
    order.push_back(index->second);
  }
  return order;
}

Status NamedQueue::receive_engage(const Decision& decision) {
  if (!join_.joined.empty()) return out_of_step("begins a plan while a rank has joined");
  if (!proposed_ || proposed_->number() != decision.plan) {
    return out_of_step("begins a plan that was not accepted");
  }
  mode_ = decision.mode;
  plan_ = std::move(proposed_);
  plan_->engage(decision.op);
  to_announce_.clear();
  history_.clear();
  for (const std::string& name : names_in_order()) {  // Starting operations removes from it.
    Pending& pending = pending_.at(name);
    pending.announced = pending.doubted = false;
    if (pending.withdrawn) {
      (void)take_pending(name);
    } else {
      place(pending);
    }
  }
  if (join_.active()) {  // The leader had decided before it heard of that.
    join_.state = MemberJoin::State::kWants;
    leave();
  }
  return {};
}

Status NamedQueue::receive_cut(const Decision& decision) {
  const uint64_t started = plan_->next_op();
  if (!plan_->frozen() || decision.op > started || decision.resume < started)
    return out_of_step("ends a plan elsewhere than its members stand");
  mode_ = decision.mode;
  plan_.reset();
  take_back(decision.op, decision.resume);
  return {};
}

Status NamedQueue::receive_withdrawn(const Decision& decision) {
  if (decision.rank != options_.rank) return {};
  const auto found = pending_.find(decision.name);
  if (found == pending_.end() || !found->second.announced) {
    return out_of_step(fmt::format("takes \"{}\" back that was not announced", decision.name));
  }
  found->second.doubted = false;
  if (found->second.withdrawn) {
    (void)take_pending(decision.name);
  } else {  // Submitted again meanwhile.
    found->second.announced = false;
    to_announce_.push_back(decision.name);
  }
  return {};
}

// -- join -----------------------------------------------------------------------------------------

Status NamedQueue::join(uint64_t token) {
  if (join_.token) return {Code::kAlreadyExists, "this rank has joined already"};
  join_.token = token;
  if (join_.active()) return {};
  join_.state = MemberJoin::State::kWants;
  if (planned()) leave();
  return {};
}

/// The leader has heard of everything that this rank has submitted, and nothing is open between
/// them: a name that was given up may be announced again.
bool NamedQueue::may_say_join() const {
  if (join_.state != MemberJoin::State::kWants || planned()) return false;
  if (!to_announce_.empty() || !after_.empty()) return false;
  return std::none_of(pending_.begin(), pending_.end(),
                      [](const auto& item) { return item.second.doubted; });
}

void NamedQueue::say_join() {
  join_.state = MemberJoin::State::kSaid;
  outbox_.push_back(encode(Announcement{.kind = Announcement::Kind::kJoin, .mode = mode_}));
}

Status NamedQueue::receive_joined(const Decision& decision) {
  if (decision.rank == options_.rank) {
    if (join_.state != MemberJoin::State::kSaid) return out_of_step("joins a rank that has not");
    join_.state = MemberJoin::State::kJoined;
  }
  join_.joined.push_back(decision.rank);
  return {};
}

Status NamedQueue::receive_over(const Decision& decision) {
  if (join_.state != MemberJoin::State::kJoined || !pending_.empty())
    return out_of_step("ends a join that is not over");
  NamedStart start{.lane = NamedLane::kOrdered,
                   .op = next_op_++,
                   .as_one = join_operation(),
                   .parts = {},
                   .gives_identity = !join_.token,
                   .name = "join",
                   .last_joined = decision.rank};
  if (join_.token) start.parts.push_back({*join_.token, 0});
  starts_.push_back(std::move(start));
  if (!join_.token) missed_join_ = decision.rank;
  join_ = MemberJoin();
  history_.clear();
  return {};
}

// -- what goes out --------------------------------------------------------------------------------

std::optional<Bytes> NamedQueue::take_announcement() {
  if (may_say_join()) say_join();
  if (!outbox_.empty()) {
    Bytes bytes = std::move(outbox_.front());
    outbox_.pop_front();
    return bytes;
  }
  Announcement message{.kind = Announcement::Kind::kReady, .mode = mode_};
  size_t size = to_announce_.empty() ? 0 : encode(message).size();
  while (!to_announce_.empty()) {
    const auto found = pending_.find(to_announce_.front());
    if (found != pending_.end() && !found->second.announced) {
      NamedRef ref = cache_.refer(found->second.entry);
      size += encoded_size(ref);
      if (size > kMaxNamedMessage) break;
      found->second.announced = true;
      message.ready.push_back(std::move(ref));
    }
    to_announce_.pop_front();
  }
  if (message.ready.empty()) return std::nullopt;
  return encode(message);
}

std::optional<NamedStart> NamedQueue::take_start() {
  if (starts_.empty()) return std::nullopt;
  NamedStart start = std::move(starts_.front());
  starts_.pop_front();
  return start;
}

std::optional<NamedFailure> NamedQueue::take_failure() {
  if (failures_.empty()) return std::nullopt;
  NamedFailure failure = std::move(failures_.front());
  failures_.pop_front();
  return failure;
}

std::string NamedQueue::describe(const std::string& name) const {
  const auto found = pending_.find(name);
  if (found == pending_.end()) return "has been started";
  const Pending& pending = found->second;
  if (pending.planned) {
    for (const BucketPart& part : plan_->next_bucket().parts) {
      const std::string& other = plan_->entry(part.index).name;
      if (!pending_.contains(other)) {
        return fmt::format("its static plan waits for \"{}\", not submitted here", other);
      }
    }
  }
  if (planned()) return "its static plan is being left, and a rank has not answered";
  if (!pending.missing) return "";
  if (pending.missing->empty()) return "submitted by every rank, waits for its turn";
  const uint32_t more = pending.missing_more;
  return fmt::format("not submitted by rank {}{}", fmt::join(*pending.missing, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

std::vector<int32_t> NamedQueue::missing(const std::string& name) const {
  const auto found = pending_.find(name);
  if (found == pending_.end()) return {};
  return found->second.missing.value_or(std::vector<int32_t>());
}

}  // namespace corro::named
