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
  return accept(std::move(entry), token, now);
}

/// Also takes in what was submitted before this rank joined, and had to wait.
Status NamedQueue::accept(NamedEntry entry, uint64_t token, Time now) {
  if (entry.name.empty() || entry.name.size() > kMaxOperationName) {
    return {Code::kInvalidArgument, fmt::format("named operation: a name has 1 to {} bytes, not {}",
                                                kMaxOperationName, entry.name.size())};
  }
  if (const auto owed = owed_.find(entry.name); owed != owed_.end()) {
    fail({token}, owed->second);
    owed_.erase(owed);
    return {};
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
      after_.emplace(std::move(name), After{std::move(entry), token, now});
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

void NamedQueue::place(Pending& pending) {
  if (planned()) {
    if (!plan_->frozen()) follow(pending);
  } else if (plan_) {
    settle(pending);
    start_planned();
  } else {
    to_announce_.push_back(pending.entry.name);
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

void NamedQueue::settle(Pending& pending) {
  const auto index = plan_->find(pending.entry.name);
  const bool left_over = index && plan_->still_runs(*index);
  if (!left_over) {
    if (std::exchange(pending.planned, false)) plan_->remove(*index);
    if (pending.withdrawn) {
      (void)take_pending(std::string(pending.entry.name));
    } else {
      to_announce_.push_back(pending.entry.name);
    }
  } else if (pending.withdrawn || !same(plan_->entry(*index), pending.entry)) {
    fail_planned(*index, cannot_run(*index, pending));
  } else if (!std::exchange(pending.planned, true)) {
    plan_->add(*index);
  }
}

void NamedQueue::leave() {
  if (plan_->frozen()) return;
  outbox_.push_back(encode(Announcement{
      .kind = Announcement::Kind::kFrozen, .mode = mode_, .started = plan_->freeze()}));
}

void NamedQueue::start_planned() {
  if (!plan_) return;
  while (const auto op = plan_->take_start()) {
    const PlannedBucket& bucket = plan_->bucket(*op);
    NamedStart start{.lane = NamedLane::kPlanned,
                     .op = *op,
                     .as_one = bucket.as_one,
                     .parts = {},
                     .absent = join_.absent_from(*op)};
    for (const BucketPart& part : bucket.parts) {
      const std::string& name = plan_->entry(part.index).name;
      if (const auto pending = take_pending(name)) {
        start.parts.push_back({pending->token, part.offset_bytes});
        continue;
      }
      start.gives_identity = true;
      if (start.name.empty()) start.name = name;
    }
    starts_.push_back(std::move(start));
  }
  if (plan_->over()) plan_.reset();
}

Status NamedQueue::cannot_run(uint32_t index, const Pending& culprit) const {
  if (culprit.withdrawn) {
    return {Code::kInvalidArgument,
            fmt::format("named operation \"{}\": given up by a rank while its peers were inside",
                        culprit.entry.name)};
  }
  return {Code::kInvalidArgument,
          fmt::format("{} Named operation \"{}\": a rank submitted {}, its peers run {}",
                      describe_difference(culprit.entry.op, plan_->entry(index).op),
                      culprit.entry.name, corro::named::describe(culprit.entry),
                      corro::named::describe(plan_->entry(index)))};
}

void NamedQueue::fail_planned(uint32_t index, const Status& cause) {
  const uint64_t op = plan_->op_of(index);
  NamedFailure failure{
      .tokens = {}, .status = cause, .cancel = NamedFailure::Cancel{NamedLane::kPlanned, op}};
  for (const BucketPart& part : plan_->bucket(op).parts) {
    const std::string& name = plan_->entry(part.index).name;
    const auto pending = take_pending(name);
    if (!pending) {
      owed_[name] = cause;
    } else if (!pending->withdrawn) {
      failure.tokens.push_back(pending->token);
    }
  }
  plan_->fail(index);
  failures_.push_back(std::move(failure));
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
  failures_.push_back({.tokens = std::move(tokens), .status = std::move(status), .cancel = {}});
}

void NamedQueue::withdraw(const std::string& name, uint64_t token) {
  if (const auto after = after_.find(name); after != after_.end() && after->second.token == token) {
    after_.erase(after);
    return;
  }
  const auto found = pending_.find(name);
  if (found == pending_.end() || found->second.token != token) return;
  Pending& pending = found->second;
  if (!pending.announced && !pending.planned) {
    (void)take_pending(std::string(name));
    return;
  }
  pending.withdrawn = true;
  if (pending.announced) {
    pending.doubted = true;
    say(Announcement::Kind::kWithdraw, pending);
  } else if (planned()) {
    leave();
  } else {
    settle(pending);
    start_planned();
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
  for (auto after = after_.begin(); after != after_.end();) {
    if (pending_.contains(after->first)) {
      ++after;
      continue;
    }
    After next = std::move(after->second);
    after = after_.erase(after);
    CORRO_TRY(accept(std::move(next.entry), next.token, next.since));
  }
  return {};
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
    case Decision::Kind::kFill:
      return receive_fill(message);
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
  failures_.push_back({.tokens = std::move(tokens),
                       .status = std::move(status),
                       .cancel = NamedFailure::Cancel{NamedLane::kOrdered, start.op}});
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
  const auto order = plan_ ? std::nullopt : local_order(decision);
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
  if (!plan_->frozen() || !plan_->leave(decision.op).ok())
    return out_of_step("ends a plan before what has been started");
  mode_ = decision.mode;
  for (const std::string& name : names_in_order()) {
    if (const auto found = pending_.find(name); found != pending_.end()) settle(found->second);
  }
  start_planned();
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
  outbox_.push_back(encode(Announcement{.kind = Announcement::Kind::kJoin,
                                        .mode = mode_,
                                        .started = plan_ ? plan_->next_op() : kNoGap}));
}

Status NamedQueue::receive_joined(const Decision& decision) {
  if (decision.rank == options_.rank) {
    if (join_.state != MemberJoin::State::kSaid) return out_of_step("joins a rank that has not");
    join_.state = MemberJoin::State::kJoined;
  }
  join_.add(decision.rank, decision.op);
  if (decision.op == kNoGap) return {};
  for (NamedStart& start : starts_) {
    if (start.lane == NamedLane::kPlanned && start.op >= decision.op) ++start.absent;
  }
  gaps_.push_back(decision.op);
  outbox_.push_back(encode(
      Announcement{.kind = Announcement::Kind::kNoted, .mode = mode_, .rank = decision.rank}));
  return {};
}

Status NamedQueue::receive_fill(const Decision& decision) {
  if (decision.rank != options_.rank) return {};
  if (join_.state != MemberJoin::State::kJoined || !plan_) return out_of_step("fills no gap");
  fill_gaps();
  return {};
}

/// Starts what is left of the plan, as if it had been submitted here.
void NamedQueue::fill_gaps() {
  for (uint32_t index = 0; index < plan_->size(); ++index) {
    while (plan_->still_runs(index)) {
      const auto cause = cannot_fill(index);
      if (!cause) break;
      fail_planned(index, *cause);
    }
  }
  while (plan_) {
    for (uint32_t index = 0; index < plan_->size(); ++index) {
      if (plan_->still_runs(index) && !pending_.contains(plan_->entry(index).name))
        plan_->add(index);
    }
    start_planned();
  }
}

/// What is no allreduce has no identity. Nor does this rank take part in an average with what it
/// submitted and left behind a gap: the peers average what they gave alone.
std::optional<Status> NamedQueue::cannot_fill(uint32_t index) const {
  const PlannedBucket& bucket = plan_->bucket(plan_->op_of(index));
  const collective::Signature& signature = bucket.as_one.signature;
  const std::string& name = plan_->entry(index).name;
  if (signature.kind != OpKind::kAllreduce) {
    return Status(Code::kFailedPrecondition,
                  describe_unsupported(signature.kind, name, options_.rank));
  }
  if (signature.reduce_op != ReduceOp::kAverage || !pending_.contains(name)) return std::nullopt;
  return Status(Code::kFailedPrecondition,
                fmt::format("named operation \"{}\": rank {} joined while it waited for others of "
                            "its static plan; wait for what was submitted, then join",
                            name, options_.rank));
}

Status NamedQueue::receive_over(const Decision& decision) {
  if (join_.state != MemberJoin::State::kJoined || plan_ || !pending_.empty())
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
  owed_.clear();  // Whose turn is which begins anew.
  history_.clear();
  return {};
}

std::optional<uint64_t> NamedQueue::take_gap() {
  if (gaps_.empty()) return std::nullopt;
  const uint64_t gap = gaps_.front();
  gaps_.pop_front();
  return gap;
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
