#include "launch/verdict.h"

#include <sys/wait.h>

#include <charconv>

namespace corro::launch {
namespace {

bool failed_alone(const RankEnd& end) { return end.ended && !end.stopped && !ended_well(end); }

bool reports_loss(const std::string& error) { return error.find("RankLost") != std::string::npos; }

/// The newest failed operation, if the rank's last operation failed.
const obs::OpSnapshot* failed_operation(const RankEnd& end) {
  if (!end.flight || end.flight->recent.empty()) return nullptr;
  const auto& last = end.flight->recent.back();
  return last.phase == obs::Phase::kFailed ? &last : nullptr;
}

/// The last "rank N" in a message where N is another rank.
int rank_in_text(const std::string& text, int own) {
  constexpr std::string_view kRank = "rank ";
  int found = -1;
  for (size_t at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at + 1)) {
    int rank = -1;
    const char* digits = text.data() + at + kRank.size();
    const auto [end, error] = std::from_chars(digits, text.data() + text.size(), rank);
    if (error == std::errc() && rank != own) found = rank;
  }
  return found;
}

std::string error_type(const Crash& crash) { return crash.error.substr(0, crash.error.find(':')); }

/// The earliest of those that `accept`, or null.
template <typename Accept>
const RankEnd* earliest(std::span<const RankEnd> ends, Accept accept) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (accept(end) && (first == nullptr || end.when < first->when)) first = &end;
  }
  return first;
}

const RankEnd* find_rank(std::span<const RankEnd> ends, int rank) {
  for (const RankEnd& end : ends) {
    if (end.rank == rank) return &end;
  }
  return nullptr;
}

const RankEnd* choose(std::span<const RankEnd> ends, Verdict& verdict) {
  const auto* by_itself =
      earliest(ends, [](const RankEnd& e) { return failed_alone(e) && !is_witness(e); });
  if (by_itself != nullptr) return by_itself;
  const auto* witness = earliest(ends, failed_alone);
  if (witness == nullptr) return nullptr;
  const RankEnd* named = find_rank(ends, named_by(*witness));
  if (named == nullptr || !named->ended) return witness;
  if (ended_well(*named)) verdict.absent = named->rank;
  const bool said_why = !named->crash.error.empty() && !is_witness(*named);
  return !ended_well(*named) && said_why ? named : witness;
}

}  // namespace

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool ended_well(const RankEnd& end) { return end.ended && exit_code(end.status) == 0; }

bool is_witness(const RankEnd& end) {
  if (end.ended && WIFSIGNALED(end.status)) return false;
  if (reports_loss(end.crash.error)) return true;
  const auto* failed = failed_operation(end);
  return failed != nullptr && failed->code == Code::kUnavailable;
}

int named_by(const RankEnd& witness) {
  const int in_text = rank_in_text(witness.crash.error, witness.rank);
  if (in_text >= 0) return in_text;
  const auto* failed = failed_operation(witness);
  return failed == nullptr ? -1 : failed->waiting_for;
}

Verdict decide_culprit(std::span<const RankEnd> ends) {
  Verdict verdict;
  const RankEnd* culprit = choose(ends, verdict);
  if (culprit == nullptr) return verdict;
  verdict.culprit = culprit->rank;
  for (const RankEnd& end : ends) {
    if (end.rank == culprit->rank || ended_well(end)) continue;
    const bool alike = failed_alone(end) && (is_witness(*culprit) || !is_witness(end)) &&
                       end.status == culprit->status &&
                       error_type(end.crash) == error_type(culprit->crash);
    (alike ? verdict.alike : verdict.victims).push_back(end.rank);
  }
  return verdict;
}

}  // namespace corro::launch
