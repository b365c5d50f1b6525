#include "launch/opening.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "diagnosis/flight_text.h"

namespace corro::launch {
namespace {

constexpr Duration kHelloPatience = std::chrono::seconds(20);  ///< For a host's agent to answer.
constexpr Duration kLongSync = std::chrono::seconds(1);  ///< So long people wait without a word.

}  // namespace

void Opening::meet(Time now) {
  if (!job_.plan.sync.empty() && (job_.agents.any_remote() || job_.plan.hosts_come())) {
    // The shells start meanwhile.
    job_.meeting.bring(SyncReader(job_.plan.sync, job_.plan.job.error_dir));
  }
  if (!meets()) return;
  deadline_ = now + kHelloPatience;
}

Status Opening::advance() {
  if (meets() || job_.meeting.busy()) return advance_meeting();
  if (!sends_) return hand_over_piece();
  CORRO_TRY(check());
  sends_ = !job_.agents.flush();
  return {};
}

/// Why there is to be no job.
Status Opening::check() const {
  if (!leadership_.holds()) return {Code::kAborted, "somebody else leads"};
  if (job_.course.asked()) return {Code::kCancelled, "stopped before a rank was started"};
  if (!job_.course.refused().empty()) return {Code::kUnavailable, job_.course.refused()};
  return {};
}

Status Opening::advance_meeting() {
  show_sync();
  CORRO_TRY(check());
  if (const Status met = job_.meeting.advance(); !met.ok()) {
    job_.course.refuse(met.message(), job_.meeting.unfit());
    return met;
  }
  (void)job_.agents.flush();  // What it says does not wait for the next event.
  const AgentLink* silent = job_.meeting.silent();
  if (silent == nullptr || monotonic_now() < deadline_) return {};
  give_up(*silent);
  for (const AgentLink& link : job_.agents.links())
    if (!link.greeted) give_up(link);
  return {Code::kDeadlineExceeded, job_.course.refused()};
}

void Opening::give_up(const AgentLink& silent) {
  job_.course.refuse(
      fmt::format("host {}: no answer for {}", silent.name, diagnosis::format_span(kHelloPatience)),
      silent.host);
}

/// What is sent is always said; what comes before that only where it takes long, to people.
void Opening::show_sync() {
  if (job_.plan.options.quiet) return;
  const bool is_long = monotonic_now() - job_.started > kLongSync && isatty(STDERR_FILENO) != 0;
  std::string line = job_.meeting.describe_sync();
  if (line.empty() && is_long) line = job_.meeting.describe_comparing();
  if (!line.empty()) return job_.output.set_status(line);
  job_.output.end_status(
      fmt::format("corro: --sync {}: all hosts have it", job_.plan.options.sync));
}

Status Opening::hand_over_piece() {
  std::string piece;
  if (job_.caller) {
    CORRO_ASSIGN(piece, job_.caller->read_call());
  }
  ready_ = piece.empty();
  if (ready_) return {};
  if (job_.plan.hosts_come()) call_.push_back(piece);
  job_.agents.send_all(agent::Call{.bytes = std::move(piece)});
  sends_ = !job_.agents.flush();
  return {};
}

void Opening::start_ranks() {
  if (const std::string lines = announce_plan(job_.plan); !lines.empty()) job_.output.note(lines);
  if (job_.plan.hosts_come())
    job_.hosts.emplace(job_.plan, job_.agents, job_.meeting, std::move(call_));
  if (!before_) return job_.course.begin(monotonic_now());
  job_.agents.enter(before_->epoch);
  for (AgentLink& link : job_.agents.links()) link.gone = before_->hosts[link.host].gone;
  job_.course.resume(*before_, monotonic_now());
}

void Opening::wait_longer(Time now) { deadline_ = now + kHelloPatience; }

void Opening::excuse(Duration stopped) {
  if (deadline_ != Time::never()) deadline_ = deadline_ + stopped;
}

}  // namespace corro::launch
