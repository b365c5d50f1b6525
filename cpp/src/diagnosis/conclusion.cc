#include "diagnosis/conclusion.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <vector>

#include "diagnosis/exit_status.h"
#include "io/signals.h"

namespace corro::diagnosis {
namespace {

/// The user asked for the end: a failure is only what has nothing to do with that.
Conclusion conclude_asked(const JobEnd& job, const ReportContext& context) {
  std::vector<RankEnd> others;
  for (const RankEnd& end : job.ranks) {
    if (!ended_as_asked(end, job.asked)) others.push_back(end);
  }
  const Verdict verdict = decide_culprit(others);
  const RankEnd* culprit = find_rank(others, verdict.culprit);
  if (culprit != nullptr && (!is_witness(*culprit) || others.size() == job.ranks.size())) {
    auto report = describe_failure(verdict, others, context);
    return {.exit = report.exit, .text = format_block(report, job.width), .failure = report};
  }
  const bool all_well = std::ranges::all_of(job.ranks, ended_well);
  if (all_well) return {};
  const std::string line = fmt::format("corro: stopped by {}; logs in {}\n",
                                       io::signal_name(*job.asked), context.log_dir);
  return {.exit = kSignalExit + *job.asked, .text = line, .failure = std::nullopt};
}

/// Some ranks have saved what they have: what counts is how the others ended.
Conclusion conclude_last(const JobEnd& job, const ReportContext& context) {
  std::vector<RankEnd> others(job.ranks.begin(), job.ranks.end());
  std::erase_if(others, has_left);
  JobEnd rest = job;
  rest.ranks = others;
  Conclusion end = conclude(rest, context);
  if (end.exit != 0) return end;
  const std::string line =
      fmt::format("corro: all ranks have left after a step, as they were asked to; logs in {}\n",
                  context.log_dir);
  return {.exit = kLeftExit, .text = line, .failure = std::nullopt, .by_hosts = true};
}

}  // namespace

bool ended_as_asked(const RankEnd& end, std::optional<int> asked) {
  if (!asked || !end.ended) return false;
  if (exit_code(end.status) == kSignalExit + *asked) return true;
  return *asked == SIGINT && end.crash.error.starts_with("KeyboardInterrupt");
}

Conclusion conclude(const JobEnd& job, const ReportContext& context) {
  if (job.timeout) {
    auto report = describe_timeout(*job.timeout, job.ranks, context);
    return {.exit = kTimeoutExit,
            .text = format_timeout_block(*job.timeout, job.ranks, context, job.width),
            .failure = report};
  }
  if (job.last && std::ranges::any_of(job.ranks, has_left)) return conclude_last(job, context);
  if (job.asked) return conclude_asked(job, context);
  const Verdict verdict = decide_culprit(job.ranks);
  if (verdict.culprit < 0 && job.no_way_on.empty()) return {};
  if (verdict.culprit < 0) {
    const std::string line =
        fmt::format("corro: stopped: {}; logs in {}\n", job.no_way_on, context.log_dir);
    return {.exit = kNoWayOnExit,
            .text = line,
            .failure = std::nullopt,
            .by_hosts = job.lost_host_last};
  }
  auto report = describe_failure(verdict, job.ranks, context);
  report.job = job.no_way_on;
  return {.exit = report.exit,
          .text = format_block(report, job.width),
          .failure = report,
          .by_hosts = !find_rank(job.ranks, verdict.culprit)->lost.empty()};
}

}  // namespace corro::diagnosis
