#include "named/named_negotiator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/shortened.h"
#include "collective/operation/codec.h"
#include "named/difference.h"

namespace corro::named {
namespace {

Status protocol_error(int32_t member, std::string_view what) {
  return {Code::kInvalidArgument,
          fmt::format("named operations: rank {} {}", member, what),
          {.rank = member, .op = "named", .phase = "negotiate"}};
}

/// Members that have joined can take part: they know what changes no result, and how it travels.
bool has_identity(const Fusible& op) {
  const bool known = op.codec.empty() || collective::codec_named(op.codec) != nullptr;
  return op.signature.kind == OpKind::kAllreduce && known;
}

/// A plan of a longer round is none: a message carries it whole.
bool fits(const Decision& proposal) {
  size_t numbers = proposal.segments.size();
  for (const auto& segment : proposal.segments) numbers += segment.size();
  const size_t rest = encode(Decision{.kind = Decision::Kind::kPropose}).size();
  return rest + numbers * sizeof(uint32_t) <= kMaxNamedMessage;
}

}  // namespace

Negotiator::Negotiator(std::vector<int32_t> members, NegotiatorOptions options)
    : members_(std::move(members)),
      options_(options),
      joins_(members_.size()),
      frozen_(members_.size()) {}

Status Negotiator::receive(int32_t rank, BytesView announcement) {
  const auto place = static_cast<size_t>(rank);
  CORRO_CHECK(rank >= 0 && place < members_.size(), rank);
  auto message = decode_announcement(announcement);
  if (!message.ok()) return protocol_error(members_[place], message.status().message());
  if (message->mode > mode_) return protocol_error(members_[place], "is ahead of the leader");
  if (message->mode < mode_)
    return {};  // Said before it heard of the change; it says it again where it matters.
  switch (message->kind) {
    case Announcement::Kind::kReady:
      return planned() ? protocol_error(members_[place], "negotiates inside a plan")
                       : receive_ready(rank, *message);
    case Announcement::Kind::kAccept:
    case Announcement::Kind::kRefuse:
      receive_answer(rank, *message);
      return {};
    case Announcement::Kind::kWaiting:
      return receive_waiting(rank, *message);
    case Announcement::Kind::kWithdraw:
      return receive_withdraw(rank, *message);
    case Announcement::Kind::kFrozen:
      if (!planned()) return protocol_error(members_[place], "leaves a plan that nobody follows");
      return receive_frozen(rank, *message);
    case Announcement::Kind::kJoin:
      return planned() ? protocol_error(members_[place], "joins inside a plan")
                       : receive_join(rank);
  }
  return {};
}

Status Negotiator::receive_ready(int32_t rank, const Announcement& message) {
  const auto place = static_cast<size_t>(rank);
  if (joins_.has(place)) return protocol_error(members_[place], "has joined, and submits");
  for (const NamedRef& ref : message.ready) {
    auto entry = cache_.resolve(ref);
    if (!entry.ok()) return protocol_error(members_[place], entry.status().message());
    Pending& pending = pending_[entry->name];
    if (pending.count == 0) {
      pending.first = *entry;
      pending.first_rank = rank;
      pending.ready.resize(members_.size());
    }
    if (pending.ready[place]) {
      return protocol_error(members_[place], fmt::format("announced \"{}\" twice", entry->name));
    }
    pending.ready[place] = true;
    if (!same(pending.first, *entry)) pending.others.emplace_back(rank, *entry);
    ++pending.count;
    if (complete(pending)) decide(entry->name, pending);
  }
  return {};
}

/// Answers whoever nears its deadline; the others hear it too.
Status Negotiator::receive_waiting(int32_t rank, const Announcement& message) {
  for (const NamedRef& ref : message.ready) {
    auto entry = cache_.resolve(ref);
    if (!entry.ok()) {
      return protocol_error(members_[static_cast<size_t>(rank)], entry.status().message());
    }
    const auto found = pending_.find(entry->name);
    if (found == pending_.end()) continue;  // Its end is on the way.
    Decision decision = make(Decision::Kind::kStalled);
    decision.name = entry->name;
    decision.missing = missing(found->second);
    if (decision.missing.size() > kMostMissing) {
      decision.missing_more = static_cast<uint32_t>(decision.missing.size() - kMostMissing);
      decision.missing.resize(kMostMissing);
    }
    outbox_.push_back(std::move(decision));
  }
  return {};
}

Status Negotiator::receive_withdraw(int32_t rank, const Announcement& message) {
  const auto place = static_cast<size_t>(rank);
  for (const NamedRef& ref : message.ready) {
    auto entry = cache_.resolve(ref);
    if (!entry.ok()) return protocol_error(members_[place], entry.status().message());
    const auto found = pending_.find(entry->name);
    // Else its run or failure is on the way to the rank.
    if (found == pending_.end() || !found->second.ready[place]) continue;
    Decision decision = make(Decision::Kind::kWithdrawn);
    decision.name = entry->name;
    decision.rank = members_[place];
    outbox_.push_back(std::move(decision));
    take_back(found->second, place);
    if (found->second.count == 0) {
      pending_.erase(found);
    } else if (complete(found->second)) {  // Who gave up has joined, too.
      decide(entry->name, found->second);
    }
  }
  return {};
}

void Negotiator::take_back(Pending& pending, size_t place) {
  if (complete(pending)) {
    std::erase_if(complete_,
                  [&](const NamedEntry& entry) { return entry.name == pending.first.name; });
  }
  const auto rank = static_cast<int32_t>(place);
  pending.ready[place] = false;
  --pending.count;
  auto& others = pending.others;
  if (std::erase_if(others, [rank](const auto& other) { return other.first == rank; }) > 0) return;
  if (pending.first_rank != rank || pending.count == 0) return;
  const auto differs = [&others](int32_t one) {
    return std::ranges::any_of(others, [one](const auto& other) { return other.first == one; });
  };
  for (int32_t one = 0; one < static_cast<int32_t>(pending.ready.size()); ++one) {
    if (!pending.ready[static_cast<size_t>(one)] || differs(one)) continue;
    pending.first_rank = one;
    return;
  }
  // Nobody else has said the same: another entry is the one to compare with.
  std::tie(pending.first_rank, pending.first) = others.front();
  std::erase_if(others, [&](const auto& other) { return same(pending.first, other.second); });
}

/// Every member has submitted it or has joined.
bool Negotiator::complete(const Pending& pending) const {
  if (!joins_.anyone()) return pending.count == members_.size();
  for (size_t place = 0; place < members_.size(); ++place) {
    if (!pending.ready[place] && !joins_.has(place)) return false;
  }
  return true;
}

/// Of a complete name: so many members have joined without it.
int32_t Negotiator::absent_from(const Pending& pending) const {
  return static_cast<int32_t>(members_.size() - pending.count);
}

void Negotiator::decide(const std::string& name, const Pending& pending) {
  const bool agreed = pending.others.empty();
  const bool possible = absent_from(pending) == 0 || has_identity(pending.first.op);
  if (agreed && possible) {
    complete_.push_back(pending.first);
    return;
  }
  outbox_.push_back(agreed ? unsupported(name, pending) : mismatch(name, pending));
  pending_.erase(pending_.find(name));
}

Decision Negotiator::mismatch(const std::string& name, const Pending& pending) const {
  Decision decision = make(Decision::Kind::kFail);
  decision.name = name;
  const auto& [other_rank, other] = pending.others.front();
  decision.rank = members_[static_cast<size_t>(other_rank)];
  decision.text =
      shortened(fmt::format("{} Named operation \"{}\": rank {} submitted {}, rank {} submitted {}",
                            describe_difference(pending.first.op, other.op), name,
                            members_[static_cast<size_t>(pending.first_rank)],
                            describe(pending.first), decision.rank, describe(other)),
                kMaxFailureText);
  return decision;
}

Decision Negotiator::unsupported(const std::string& name, const Pending& pending) const {
  Decision decision = make(Decision::Kind::kFail);
  decision.cause = FailCause::kJoined;
  decision.name = name;
  const auto absent = std::find(pending.ready.begin(), pending.ready.end(), false);
  decision.rank = members_[static_cast<size_t>(absent - pending.ready.begin())];
  decision.text = shortened(
      describe_unsupported(pending.first.op.signature.kind, name, decision.rank), kMaxFailureText);
  return decision;
}

void Negotiator::receive_answer(int32_t rank, const Announcement& message) {
  if (!proposal_ || proposal_->plan != message.plan) return;
  if (message.kind == Announcement::Kind::kAccept) {
    proposal_->accepted[static_cast<size_t>(rank)] = true;
    return;
  }
  proposal_.reset();
  caution_ = std::min(2 * caution_, kMostCaution);
}

Status Negotiator::receive_frozen(int32_t rank, const Announcement& message) {
  const bool first = std::none_of(frozen_.begin(), frozen_.end(),
                                  [](const auto& started) { return started.has_value(); });
  if (first) outbox_.push_back(make(Decision::Kind::kFreeze));
  if (message.started < first_op_) {
    return protocol_error(members_[static_cast<size_t>(rank)], "has started less than its plan");
  }
  frozen_[static_cast<size_t>(rank)] = message.started;
  const bool all = std::all_of(frozen_.begin(), frozen_.end(),
                               [](const auto& started) { return started.has_value(); });
  return all ? cut() : Status();
}

/// All members stand still. What one of them has not started has ended nowhere: it is taken back
/// where it has started, and the ids up to the farthest member are used up.
Status Negotiator::cut() {
  const auto [least, most] = std::minmax_element(frozen_.begin(), frozen_.end());
  Decision decision = make(Decision::Kind::kCut);
  decision.mode = ++mode_;
  decision.op = **least;
  decision.resume = **most;
  if (decision.resume - decision.op > kMostAhead) {
    return protocol_error(members_[static_cast<size_t>(most - frozen_.begin())],
                          "has started more than was submitted");
  }
  std::fill(frozen_.begin(), frozen_.end(), std::nullopt);
  next_planned_op_ = decision.resume;
  caution_before_cut_ = caution_;
  const uint64_t rounds = (decision.op - first_op_) / buckets_;
  caution_ = rounds >= kGoodRounds ? 1 : std::min(2 * caution_, kMostCaution);
  rounds_.reset();
  outbox_.push_back(std::move(decision));
  return {};
}

/// From here on the rank counts as ready for every name, and no plan is proposed until all have
/// joined.
Status Negotiator::receive_join(int32_t rank) {
  const auto place = static_cast<size_t>(rank);
  if (joins_.has(place)) return protocol_error(members_[place], "has joined already");
  joins_.add(place);
  // A plan that was left for a join was none the worse for that.
  caution_ = std::min(caution_, caution_before_cut_);
  proposal_.reset();
  rounds_.reset();
  Decision decision = make(Decision::Kind::kJoined);
  decision.rank = members_[place];
  outbox_.push_back(std::move(decision));
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto item = next++;  // decide() may erase it.
    const bool waited = !item->second.ready[place] && complete(item->second);
    if (waited) decide(std::string(item->first), item->second);
  }
  return {};
}

Decision Negotiator::end_join() {
  Decision decision = make(Decision::Kind::kOver);
  decision.rank = members_[joins_.last()];
  joins_.reset();
  return decision;
}

std::optional<Bytes> Negotiator::take_decision(bool room) {
  if (!outbox_.empty()) {
    const Decision decision = std::move(outbox_.front());
    outbox_.pop_front();
    return encode(decision);
  }
  if (planned() || !room) return std::nullopt;
  if (at_round_end()) {
    if (may_engage()) return encode(engage());
    if (!proposal_) {
      if (const auto proposed = propose()) return encode(*proposed);
    }
  }
  if (!complete_.empty()) return encode(compose_run());
  if (joins_.over()) return encode(end_join());
  return std::nullopt;
}

Decision Negotiator::compose_run() {
  Decision decision = make(Decision::Kind::kRun);
  decision.fusion = options_.fusion;
  decision.absent = absent_from(pending_.at(complete_.front().name));
  size_t bytes = encode(decision).size();
  while (!complete_.empty()) {
    const NamedEntry& entry = complete_.front();
    if (absent_from(pending_.at(entry.name)) != decision.absent) break;  // It is another average.
    NamedRef ref = cache_.refer(entry);
    bytes += encoded_size(ref);
    if (bytes > kMaxNamedMessage) break;
    decision.run.push_back(std::move(ref));
    add_to_rounds(entry, cache_.learn(entry));
    pending_.erase(entry.name);
    complete_.pop_front();
    if (at_round_end()) break;  // So that a plan can begin here.
  }
  rounds_.end_run();
  return decision;
}

/// A plan may be left at any operation, so it holds only those that can be taken back: nobody has
/// the result before all have begun, and until then every caller's memory is as it was. Over
/// messages that takes a copy, which is worth it for what is as small as parts of a bucket. A codec
/// that is not of this library might keep what it left out.
bool Negotiator::may_be_planned(const Fusible& op) const {
  if (!op.codec.empty() && collective::codec_named(op.codec) == nullptr) return false;
  if (options_.waits_for_all) return true;
  const collective::Signature& signature = op.signature;
  return signature.kind == OpKind::kAllreduce && signature.count > 0 &&
         signature.count * size_of(signature.dtype) <= options_.fusion.solo_bytes;
}

void Negotiator::add_to_rounds(const NamedEntry& entry, uint32_t number) {
  if (!options_.plans || joins_.anyone()) return;
  rounds_.add(may_be_planned(entry.op) ? number : NamedRef::kNone);
  const bool broken =
      proposal_ && (rounds_.length() != proposal_->length || rounds_.rounds() < proposal_->rounds);
  if (broken) proposal_.reset();
}

bool Negotiator::at_round_end() const {
  if (!options_.plans || !rounds_.at_boundary()) return false;
  // Two rounds of a long step are no accident, two of a short one may be.
  const uint64_t evidence = (kEvidence + rounds_.length() - 1) / rounds_.length();
  return rounds_.rounds() >= caution_ * std::max(kFirstRounds, evidence);
}

std::optional<Decision> Negotiator::propose() {
  Decision decision = make(Decision::Kind::kPropose);
  decision.fusion = options_.fusion;
  decision.segments = rounds_.segments();
  if (decision.segments.empty() || !fits(decision)) {
    caution_ = std::min(2 * caution_, kMostCaution);
    return std::nullopt;
  }
  decision.plan = ++plans_;
  proposal_ = Proposal{};
  proposal_->plan = decision.plan;
  proposal_->length = rounds_.length();
  proposal_->rounds = rounds_.rounds();
  proposal_->accepted.resize(members_.size());
  for (const auto& segment : decision.segments) {
    std::vector<Fusible> list;
    for (const uint32_t number : segment) {
      proposal_->numbers.insert(number);
      list.push_back(cache_.entry(number)->op);
    }
    proposal_->buckets += fuse(list, options_.fusion).size();
  }
  return decision;
}

bool Negotiator::may_engage() const {
  if (!proposal_) return false;
  const auto& accepted = proposal_->accepted;
  if (std::find(accepted.begin(), accepted.end(), false) != accepted.end()) return false;
  return std::all_of(pending_.begin(), pending_.end(), [this](const auto& item) {
    return proposal_->numbers.contains(cache_.find(item.second.first));
  });
}

Decision Negotiator::engage() {
  ++mode_;
  Decision decision = make(Decision::Kind::kEngage);
  decision.plan = proposal_->plan;
  decision.op = first_op_ = next_planned_op_;
  buckets_ = proposal_->buckets;
  // What has been announced and not run belongs to the plan's first round: every member knows its
  // own part of it.
  proposal_.reset();
  pending_.clear();
  complete_.clear();
  return decision;
}

Decision Negotiator::make(Decision::Kind kind) const {
  Decision decision;
  decision.kind = kind;
  decision.mode = mode_;
  return decision;
}

std::vector<int32_t> Negotiator::missing(const Pending& pending) const {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (!pending.ready[rank] && !joins_.has(rank)) ranks.push_back(members_[rank]);
  }
  return ranks;
}

}  // namespace corro::named
