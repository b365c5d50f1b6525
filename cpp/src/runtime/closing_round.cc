#include "runtime/closing_round.h"

#include <utility>

namespace corro::runtime {

void ClosingRound::vote(uint64_t op, const SignatureBits& signature) {
  voted_.insert(op);
  if (rank_ == kDecider) return hear_vote(rank_, op, signature);
  messages_.push_back({.kind = wire::ControlKind::kVote, .op = op, .signature = signature});
}

void ClosingRound::hear_vote(int32_t from, uint64_t op, const SignatureBits& signature) {
  if (failed_) return;
  Votes& votes = votes_[op];
  if (votes.from.empty()) {
    votes.first = from;
    votes.signature = signature;
  }
  if (votes.signature != signature) {
    verdicts_.push_back({.op = op,
                         .kind = Verdict::Kind::kDisagree,
                         .one = votes.first,
                         .other = from,
                         .signature = votes.signature,
                         .others = signature});
    return forget(op);
  }
  votes.from.insert(from);
  if (votes.from.size() < static_cast<size_t>(size_)) return;
  messages_.push_back({.to_all = true, .kind = wire::ControlKind::kCommit, .op = op});
  verdicts_.push_back({.op = op, .kind = Verdict::Kind::kCommitted});
  forget(op);
}

void ClosingRound::hear_commit(uint64_t op) {
  if (voted_.erase(op) > 0) verdicts_.push_back({.op = op, .kind = Verdict::Kind::kCommitted});
}

void ClosingRound::hear_settled() {
  if (failed_) end_voted(Verdict::Kind::kFailed);
}

void ClosingRound::forget(uint64_t op) {
  votes_.erase(op);
  voted_.erase(op);
}

void ClosingRound::fail(Time now) {
  if (std::exchange(failed_, true)) return;
  settle_by_ = now + kVerdictTime;
  if (rank_ != kDecider) return;
  messages_.push_back({.to_all = true, .kind = wire::ControlKind::kSettled});
  votes_.clear();
  end_voted(Verdict::Kind::kFailed);
}

void ClosingRound::lose_decider() { end_voted(Verdict::Kind::kUnknown); }

void ClosingRound::check(Time now) {
  if (now >= settle_by_) end_voted(Verdict::Kind::kUnknown);
}

void ClosingRound::end_voted(Verdict::Kind kind) {
  for (const uint64_t op : std::exchange(voted_, {})) verdicts_.push_back({.op = op, .kind = kind});
}

int32_t ClosingRound::waiting_for(uint64_t op) const {
  if (rank_ != kDecider) return kDecider;
  const auto votes = votes_.find(op);
  for (int32_t r = 0; r < size_; ++r) {
    if (votes == votes_.end() || !votes->second.from.contains(r)) return r;
  }
  return -1;
}

std::optional<ClosingRound::Message> ClosingRound::take_message() {
  if (messages_.empty()) return std::nullopt;
  const Message message = messages_.front();
  messages_.pop_front();
  return message;
}

std::optional<ClosingRound::Verdict> ClosingRound::take_verdict() {
  if (verdicts_.empty()) return std::nullopt;
  const Verdict verdict = verdicts_.front();
  verdicts_.pop_front();
  return verdict;
}

}  // namespace corro::runtime
