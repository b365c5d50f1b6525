#include "launch/last_word.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "diagnosis/conclusion.h"
#include "diagnosis/error_file.h"
#include "diagnosis/exit_status.h"
#include "io/signals.h"
#include "launch/hint.h"
#include "launch/job_picture.h"

namespace corro::launch {
namespace {

/// Records are short.
constexpr size_t kMostWhy = 300;

/// For whoever has not the job's screen.
std::string why_of(const diagnosis::Conclusion& end, const JobCourse::Result& result) {
  const std::string all_left = result.last ? "all ranks have left, as they were asked to" : "";
  if (!end.failure)
    return diagnosis::fit(result.no_way_on.empty() ? all_left : result.no_way_on, kMostWhy);
  return fmt::format("{} (rank {} on {})", diagnosis::fit(end.failure->cause, kMostWhy),
                     end.failure->rank, end.failure->host);
}

/// For whoever listens to what happens.
void announce_failure(Job& job, const diagnosis::FailureReport& failure, uint32_t epoch) {
  const std::vector<size_t>& places = job.course.ranks();
  const auto rank = std::ranges::find(places, static_cast<size_t>(failure.rank));
  const Event event{.kind = EventKind::kFailure,
                    .epoch = epoch,
                    .host = failure.host,
                    .rank = rank == places.end() ? -1 : static_cast<int>(rank - places.begin()),
                    .place = failure.rank,
                    .step = failure.step,
                    .cause = failure.cause,
                    .report = &failure};
  job.output.emit(event);
  job.display.hear(event);
}

/// Of a job that has run.
Ending say_result(Job& job, JobCourse::Result result) {
  const Time now = monotonic_now();
  const LaunchPlan& plan = job.plan;
  JobOutput& output = job.output;
  if (!result.timed_out) diagnosis::read_error_files(result.ends, output.log_directory());
  const diagnosis::JobEnd said{.ranks = result.ends,
                               .asked = result.asked,
                               .timeout = result.timed_out ? plan.options.timeout : std::nullopt,
                               .last = result.last,
                               .no_way_on = result.no_way_on,
                               .lost_host_last = result.lost_host_last,
                               .width = screen_width()};
  const diagnosis::Conclusion end = diagnosis::conclude(
      said, {.host = plan.job.hosts[0].name,
             .log_dir = output.log_directory(),
             .now = now,
             .hint = [&plan](const diagnosis::Crash& crash) { return hint_about(plan, crash); }});
  output.settle(end.failure ? end.failure->rank : -1, now);
  if (end.failure) announce_failure(job, *end.failure, result.epoch);
  if (plan.options.verbose) {
    output.note(fmt::format("corro: {} ranks ended after {:.2f} s, status {}\n", result.ends.size(),
                            std::chrono::duration<double>(now - job.started).count(), end.exit));
  }
  const Code code = result.timed_out                ? Code::kDeadlineExceeded
                    : end.exit != 0 && !end.failure ? Code::kCancelled
                                                    : Code::kOk;
  output.say_end({.code = code,
                  .exit = end.exit,
                  .places = job.course.ranks(),
                  .text = end.text,
                  .failure = end.failure});
  return {.status = end.exit, .by_hosts = end.by_hosts, .why = why_of(end, result)};
}

/// Of a job that has not begun. `asked`: the signal that has ended its start; none: `why` has.
Ending say_refused(const LaunchPlan& plan, const std::string& why, std::optional<int> asked,
                   JobOutput& output) {
  output.end_status("");  // of --sync
  const int exit = asked ? diagnosis::kSignalExit + *asked : diagnosis::kUsageExit;
  output.say_end({.code = asked ? Code::kCancelled : Code::kUnavailable,
                  .exit = exit,
                  .text = fmt::format("corro {}: {}\n", plan.options.command_name, why)});
  return {.status = exit, .why = diagnosis::fit(why, kMostWhy)};
}

/// Of a job whose only agent has ended before its time, with this status as from waitpid.
Ending say_killed(int status, JobOutput& output) {
  output.settle(-1, monotonic_now());
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : SIGKILL;
  const std::string how =
      WIFSIGNALED(status) ? "was killed by " + io::signal_name(signal) : "ended before its time";
  const int exit = diagnosis::kSignalExit + signal;
  output.say_end(
      {.code = Code::kAborted,
       .exit = exit,
       .text = fmt::format("corro: the process that watched the ranks {}; every rank was stopped\n",
                           how)});
  return {.status = exit};
}

/// Hosts that cannot be used do not keep the others from beginning.
void say_unusable(Job& job, JobOrders& orders) {
  job.output.end_status("");  // of --sync
  for (const auto& [host, why] : job.course.refused_hosts())
    job.course.note(why + "; the job begins without it, and tries it again later");
  orders.carry_out();
}

}  // namespace

std::optional<Ending> say_last_word(Job& job, JobOrders& orders, std::optional<int> killed) {
  JobCourse& course = job.course;
  if (!course.begun() && !course.asked())
    job.others = plan_without(job.plan, course.refused_hosts());
  if (job.others) {
    say_unusable(job, orders);
    return std::nullopt;
  }
  if (!course.refused().empty())
    return say_refused(job.plan, course.refused(), course.asked(), job.output);
  if (killed) return say_killed(*killed, job.output);
  const Time now = monotonic_now();
  JobCourse::Result result = course.result(now);
  orders.carry_out();
  return say_result(job, std::move(result));
}

}  // namespace corro::launch
