#include "diagnosis/verdict.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>

#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"
#include "io/signals.h"

namespace corro::diagnosis {
namespace {

bool failed_alone(const RankEnd& end) { return end.ended && !end.stopped && !ended_well(end); }

/// The newest failed operation, if the rank's last operation failed.
const obs::OpSnapshot* failed_operation(const RankEnd& end) {
  const obs::OpSnapshot* last = end.flight ? last_operation(*end.flight) : nullptr;
  return last != nullptr && last->phase == obs::Phase::kFailed ? last : nullptr;
}

/// N of "<phrase>N"; -1 if the text has none.
int rank_behind(const std::string& text, std::string_view phrase) {
  const size_t at = text.find(phrase);
  if (at == std::string::npos) return -1;
  int rank = -1;
  std::from_chars(text.data() + at + phrase.size(), text.data() + text.size(), rank);
  return rank;
}

/// N of "rank N<phrase>"; -1 if the text has none.
int rank_before(const std::string& text, std::string_view phrase) {
  constexpr std::string_view kRank = "rank ";
  const size_t end = text.find(phrase);
  const size_t at = end == std::string::npos ? end : text.rfind(kRank, end);
  if (at == std::string::npos) return -1;
  int rank = -1;
  const char* last = text.data() + end;
  const auto [read, error] = std::from_chars(text.data() + at + kRank.size(), last, rank);
  return error == std::errc() && read == last ? rank : -1;
}

/// "rank N was lost", or with the place where it ran: "rank N (host:port) was lost".
bool says_lost(const std::string& error) {
  constexpr std::string_view kLost = " was lost";
  const size_t end = error.find(kLost);
  if (end == std::string::npos) return false;
  std::string who = error.substr(0, end);
  if (who.ends_with(')')) who.resize(std::min(who.rfind(" ("), who.size()));
  return rank_before(who.append(kLost), kLost) >= 0;
}

/// In corro's words, whatever error a framework raises with them, or in those of its horovod
/// package.
bool reports_loss(const std::string& error) {
  return error.find("RankLost") != std::string::npos ||
         rank_before(error, " has left the job") >= 0 || says_lost(error) ||
         error.find("HorovodInternalError: Horovod has been shut down. ") != std::string::npos;
}

/// That a deadline was over, in the engine's words, whatever error a framework raises with them.
bool says_late(const std::string& error) {
  return error.find("corro.TimeoutError: ") != std::string::npos ||
         rank_before(error, " was late: ") >= 0 ||
         (rank_behind(error, " on rank ") >= 0 &&
          error.find("): waited for ") != std::string::npos);
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

/// "MismatchError: ..." of "corro.MismatchError: ...": torch passes errors on without their module.
std::string_view without_module(const Crash& crash) {
  const std::string_view error = crash.error;
  const size_t dot = error.substr(0, error.find(':')).rfind('.');
  return dot == std::string_view::npos ? error : error.substr(dot + 1);
}

std::string_view error_type(const Crash& crash) {
  const std::string_view error = without_module(crash);
  return error.substr(0, error.find(':'));
}

/// The earliest of those that `accept`, or null.
template <typename Accept>
const RankEnd* earliest(std::span<const RankEnd> ends, Accept accept) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (accept(end) && (first == nullptr || end.when < first->when)) first = &end;
  }
  return first;
}

/// The rank that `waiter` gave up on; if that one had given up too, the one behind it.
const RankEnd* last_awaited(std::span<const RankEnd> ends, const RankEnd& waiter) {
  const RankEnd* last = &waiter;
  for (size_t hops = 0; hops < ends.size(); ++hops) {
    const RankEnd* next = find_rank(ends, awaited_by(*last));
    if (next == nullptr) return last;
    if (!gave_up(*next)) return next;
    last = next;
  }
  return &waiter;  // They waited in a circle.
}

/// The named operation that it has waited in to no avail, if its last one was that, or null.
const obs::OpSnapshot* waited_in_vain(const RankEnd& end) {
  const auto* op = failed_operation(end);
  const bool waited = op != nullptr && !op->name.empty() &&
                      (op->code == Code::kUnavailable || op->code == Code::kDeadlineExceeded);
  return waited ? op : nullptr;
}

bool waited_in_the_same(const RankEnd& one, const RankEnd& other) {
  const auto* its = waited_in_vain(one);
  const auto* others = waited_in_vain(other);
  return its != nullptr && others != nullptr && its->op.kind == others->op.kind &&
         its->name == others->name;
}

uint64_t time_in(const obs::OpSnapshot& op) {
  return op.done_ns < op.queued_ns ? 0 : op.done_ns - op.queued_ns;
}

/// Whether `awaited` has waited itself, in another operation than `waiter`, for one that was in
/// that of `waiter`. Whoever only comes late fails at once in whatever it calls.
bool waited_elsewhere(std::span<const RankEnd> ends, const RankEnd& awaited,
                      const RankEnd& waiter) {
  const auto* its = waited_in_vain(awaited);
  const auto* others = waited_in_vain(waiter);
  if (its == nullptr || others == nullptr || waited_in_the_same(awaited, waiter)) return false;
  const RankEnd* next = find_rank(ends, awaited_by(awaited));
  return next != nullptr && waited_in_the_same(*next, waiter) &&
         time_in(*its) >= time_in(*others) / 2;
}

std::vector<int> ranks_that_gave_up(std::span<const RankEnd> ends, int first) {
  std::vector<int> ranks = {first};
  for (const RankEnd& end : ends) {
    if (end.rank != first && failed_alone(end) && gave_up(end)) ranks.push_back(end.rank);
  }
  return ranks;
}

bool said_why(const RankEnd& end) {
  return !end.crash.error.empty() && !is_witness(end) && !gave_up(end);
}

/// Whether it failed with the same kind of error. One that was stopped may have been on its way out
/// with the same one; but a program handles errors, too, and says so, if they are not corro's.
bool failed_like(const RankEnd& end, const RankEnd& culprit) {
  if (is_witness(end) && !is_witness(culprit)) return false;
  if (error_type(end.crash) != error_type(culprit.crash)) return false;
  if (failed_alone(end)) return end.status == culprit.status;
  const bool of_corro =
      end.crash.error.starts_with("corro.") || culprit.crash.error.starts_with("corro.");
  return said_why(end) && (of_corro || without_module(end.crash) == without_module(culprit.crash));
}

/// Others gave up at a deadline: `waiter` first.
const RankEnd* choose_missing(std::span<const RankEnd> ends, const RankEnd& waiter,
                              Verdict& verdict) {
  const RankEnd* awaited = find_rank(ends, awaited_by(waiter));
  if (awaited != nullptr && !said_why(*awaited) && waited_elsewhere(ends, *awaited, waiter)) {
    verdict.elsewhere = awaited->rank;
    return &waiter;
  }
  const RankEnd* missing = last_awaited(ends, waiter);
  if (missing == &waiter || said_why(*missing)) return missing;
  if (ended_well(*missing) && missing->when < waiter.when) {
    verdict.absent = missing->rank;
    return &waiter;
  }
  verdict.waited = ranks_that_gave_up(ends, waiter.rank);
  std::erase(verdict.waited, missing->rank);
  return missing;
}

/// Whether any rank reports the loss of this one.
bool is_missed(std::span<const RankEnd> ends, int rank) {
  return std::ranges::any_of(
      ends, [rank](const RankEnd& end) { return is_witness(end) && named_by(end) == rank; });
}

/// Others only report a loss: `witness` first.
const RankEnd* choose_lost(std::span<const RankEnd> ends, const RankEnd& witness,
                           Verdict& verdict) {
  const RankEnd* named = find_rank(ends, named_by(witness));
  if (named == nullptr || !named->ended) return &witness;
  const bool left = named->stopped && saw_it_leave(witness);
  if (ended_well(*named) || left) verdict.absent = named->rank;
  return &witness;
}

const RankEnd* choose(std::span<const RankEnd> ends, Verdict& verdict) {
  const auto* by_itself = earliest(ends, [](const RankEnd& end) {
    return failed_alone(end) && !is_witness(end) && !gave_up(end);
  });
  if (by_itself != nullptr) return by_itself;
  const auto* on_its_way_out = earliest(ends, [ends](const RankEnd& end) {
    return end.stopped && !ended_well(end) && said_why(end) && is_missed(ends, end.rank);
  });
  if (on_its_way_out != nullptr) return on_its_way_out;
  const auto* waiter =
      earliest(ends, [](const RankEnd& end) { return failed_alone(end) && gave_up(end); });
  if (waiter != nullptr) return choose_missing(ends, *waiter, verdict);
  const auto* witness = earliest(ends, failed_alone);
  return witness == nullptr ? nullptr : choose_lost(ends, *witness, verdict);
}

}  // namespace

const RankEnd* find_rank(std::span<const RankEnd> ends, int rank) {
  const auto found = std::ranges::find(ends, rank, &RankEnd::rank);
  return found == ends.end() ? nullptr : &*found;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? kSignalExit + WTERMSIG(status) : WEXITSTATUS(status);
}

bool ended_well(const RankEnd& end) { return end.ended && exit_code(end.status) == 0; }

std::string describe_status(const RankEnd& end) {
  if (ended_well(end)) return "";
  if (WIFSIGNALED(end.status)) return "killed by " + io::signal_name(WTERMSIG(end.status));
  return fmt::format("status {}", exit_code(end.status));
}

bool has_left(const RankEnd& end) { return end.ended && exit_code(end.status) == kLeftExit; }

bool is_witness(const RankEnd& end) {
  if (end.ended && WIFSIGNALED(end.status) && !end.stopped) return false;
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

bool saw_it_leave(const RankEnd& witness) {
  return witness.crash.error.find("has left the job") != std::string::npos;
}

bool gave_up(const RankEnd& end) {
  if (end.ended && WIFSIGNALED(end.status) && !end.stopped) return false;
  if (says_late(end.crash.error)) return true;
  const auto* failed = failed_operation(end);
  return failed != nullptr && failed->code == Code::kDeadlineExceeded &&
         !reports_loss(end.crash.error);
}

int awaited_by(const RankEnd& end) {
  // As the engine says it: of what another rank waited for, which may have been this one, of an
  // operation, of a named one, of the start.
  if (const int late = rank_before(end.crash.error, " was late: "); late >= 0)
    return late == end.rank ? -1 : late;
  for (const std::string_view phrase :
       {"waited for rank ", "not submitted by rank ", "but rank "}) {
    if (const int rank = rank_behind(end.crash.error, phrase); rank >= 0) return rank;
  }
  const auto* failed = failed_operation(end);
  return failed == nullptr ? -1 : failed->waiting_for;
}

Verdict decide_culprit(std::span<const RankEnd> ends) {
  Verdict verdict;
  const RankEnd* culprit = choose(ends, verdict);
  if (culprit == nullptr) return verdict;
  verdict.culprit = culprit->rank;
  for (const RankEnd& end : ends) {
    if (end.rank == culprit->rank || ended_well(end)) continue;
    const bool alike = verdict.waited.empty() && failed_like(end, *culprit);
    (alike ? verdict.alike : verdict.victims).push_back(end.rank);
  }
  return verdict;
}

}  // namespace corro::diagnosis
