#include "launch/job_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "dashboard/board.h"
#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"
#include "wire/digest.h"

namespace corro::launch {
namespace {

using dashboard::JobPicture;
using dashboard::JobState;
using dashboard::RankRow;
using dashboard::RankState;
using dashboard::TablePart;
using diagnosis::RankEnd;

RankState state_of(const RankEnd& end) {
  if (!end.ended && end.pid == 0) return RankState::kStarting;
  if (!end.ended) return end.paused ? RankState::kPaused : RankState::kRunning;
  if (!end.lost.empty()) return RankState::kLost;
  if (diagnosis::ended_well(end) || diagnosis::has_left(end)) return RankState::kDone;
  return end.stopped || diagnosis::is_witness(end) ? RankState::kStopped : RankState::kFailed;
}

/// What the process tells of its training.
void add_training(RankRow& row, const obs::ProcessSnapshot& flight) {
  constexpr double kNanosecond = 1e-9;
  if (flight.step > 0) row.step = flight.step;
  if (row.step && flight.progress) {
    row.of = flight.progress->of;
    row.done = flight.progress->step;
  }
  if (flight.times.steps > 0 && flight.times.step_ns > 0) {
    const auto took = static_cast<double>(flight.times.step_ns);
    row.step_seconds = took * kNanosecond;
    // Several threads may have waited at once.
    row.wait_share = std::min(1.0, static_cast<double>(flight.times.wait_ns) / took);
  }
  for (const obs::LoggedValue& one : flight.logged)
    row.values.push_back({.name = one.name, .value = one.value, .step = one.step});
}

/// What the process does, or did last.
void add_flight(RankRow& row, const obs::ProcessSnapshot& flight) {
  add_training(row, flight);
  const obs::OpSnapshot* op = diagnosis::telling_operation(flight);
  if (op == nullptr) return;
  row.operation = diagnosis::describe_operation(*op);
  row.phase = obs::name_of(op->phase);
  const bool is_over = op->phase == obs::Phase::kDone || op->phase == obs::Phase::kFailed;
  const bool runs = row.state == RankState::kRunning || row.state == RankState::kPaused;
  if (runs && !is_over) row.awaits = op->waiting_for;
}

RankRow row_of(const JobCourse& course, const LaunchPlan& plan, size_t place) {
  const RankEnd& end = course.ends()[place];
  const auto rank = std::ranges::find(course.ranks(), place);
  RankRow row{
      .place = static_cast<int>(place),
      .rank = rank == course.ranks().end() ? -1 : static_cast<int>(rank - course.ranks().begin()),
      .member = wire::to_hex(course.subject(place).member),
      .host = plan.job.hosts[course.host_of(place)].name,
      .state = state_of(end),
      .pid = end.pid};
  if (end.flight) add_flight(row, *end.flight);
  if (end.ended) row.cause = end.lost.empty() ? diagnosis::describe_status(end) : end.lost;
  return row;
}

/// What the process has sent; peers are named by their places (JobCourse::learn).
void add_links(std::vector<dashboard::LinkOfMember>& links, const RankRow& row,
               const JobCourse& course, const LaunchPlan& plan) {
  const auto& flight = course.ends()[static_cast<size_t>(row.place)].flight;
  if (!flight) return;
  std::map<std::string, uint64_t> bytes;  // By host.
  for (const obs::LinkTraffic& one : flight->links) {
    const bool is_known = one.peer >= 0;
    bytes[is_known ? plan.job.hosts[course.host_of(static_cast<size_t>(one.peer))].name : ""] +=
        one.sent;
  }
  for (const auto& [to, sent] : bytes)
    links.push_back({.member = row.member, .from = row.host, .to = to, .bytes = sent});
}

TablePart part_of(const obs::TableCounts& counts, size_t server, const std::string& host) {
  return {.table = counts.name,
          .server = static_cast<int>(server),
          .host = host,
          .rows = counts.rows,
          .bytes = counts.bytes,
          .shards = counts.shards,
          .steps = counts.steps,
          .pulls = counts.pulls,
          .pulled_rows = counts.pulled_rows,
          .pushes = counts.pushes,
          .pushed_rows = counts.pushed_rows,
          .pull_p99 = Duration(static_cast<int64_t>(
              std::min<uint64_t>(counts.pull_p99_ns, std::numeric_limits<int64_t>::max())))};
}

/// Servers are processes of their own, or ranks.
std::vector<TablePart> tables_of(const JobCourse& course, const LaunchPlan& plan) {
  std::vector<TablePart> parts;
  const auto add = [&](const std::vector<obs::TableCounts>& tables, size_t server, size_t host) {
    for (const obs::TableCounts& counts : tables)
      parts.push_back(part_of(counts, server, plan.job.hosts[host].name));
  };
  const Servers& servers = course.servers();
  for (size_t server = 0; server < servers.size(); ++server)
    add(servers.tables(server), server, servers.host_of(server));
  for (size_t place = 0; place < course.ends().size(); ++place)
    if (!course.ends()[place].ended) add(course.ends()[place].tables, place, course.host_of(place));
  std::ranges::sort(parts, {},
                    [](const TablePart& one) { return std::tie(one.table, one.server); });
  return parts;
}

JobState state_of(const JobCourse& course) {
  if (!course.begun()) return JobState::kOpening;
  if (!course.goes_on()) return JobState::kEnding;
  return course.long_wait().empty() ? JobState::kRunning : JobState::kWaiting;
}

std::string describe_ranks(size_t ranks, const char* one, const char* several) {
  return ranks == 1 ? fmt::format("1 rank {}", one) : fmt::format("{} ranks {}", ranks, several);
}

std::string describe_steps(const std::vector<RankRow>& ranks) {
  const auto range = dashboard::steps_of(ranks);
  if (!range) return "no step yet";
  return range->least == range->most ? fmt::format("step {}", range->most)
                                     : fmt::format("steps {} to {}", range->least, range->most);
}

std::string summarize(const JobPicture& job, const std::string& long_wait) {
  const auto running = static_cast<size_t>(std::ranges::count_if(job.ranks, dashboard::runs));
  switch (job.state) {
    case JobState::kOpening:
      return "the hosts are being prepared; no rank was started yet";
    case JobState::kWaiting:
      return long_wait;
    case JobState::kEnding:
      return "the job is being ended; " + describe_ranks(running, "still runs", "still run");
    default:
      return fmt::format("{}; {}", describe_ranks(running, "runs", "run"),
                         describe_steps(job.ranks));
  }
}

std::string describe_end(const Ending& ending) {
  if (ending.status == 0) return "the job is over: every rank has done its work";
  if (ending.why.empty()) return fmt::format("the job was stopped; exit status {}", ending.status);
  const bool has_left = ending.status == diagnosis::kLeftExit;
  return (has_left ? "the job is over: " : "the job has failed: ") + ending.why;
}

}  // namespace

JobPicture picture_of(const JobCourse& course, const LaunchPlan& plan, UnixTime started) {
  JobPicture job{.job = plan.job.job_id,
                 .command = fmt::format("{}", fmt::join(plan.options.command, " ")),
                 .state = state_of(course),
                 .epoch = course.epoch(),
                 .started = started,
                 .lost = course.lost(),
                 .plan = course.plan()};
  for (size_t place = 0; place < course.ends().size(); ++place) {
    const RankEnd& end = course.ends()[place];
    const bool was_there = !end.ended || end.pid != 0;
    if (was_there) job.ranks.push_back(row_of(course, plan, place));
    if (was_there && end.flight && end.flight->times.steps > 0)
      job.steps.push_back({job.ranks.back().member, end.flight->steps});
  }
  for (const RankRow& row : job.ranks) add_links(job.links, row, course, plan);
  job.tables = tables_of(course, plan);
  job.summary = summarize(job, course.long_wait());
  return job;
}

JobPicture picture_of_end(JobPicture last, const Ending& ending) {
  const bool is_well = ending.status == 0;
  last.state = is_well ? JobState::kDone : JobState::kFailed;
  last.summary = describe_end(ending);
  return last;
}

dashboard::Happening happening_of(const Event& event, UnixTime now) {
  return {.at = now - std::chrono::floor<UnixTime::duration>(event.age),
          .kind = std::string(name_of(event.kind)),
          .epoch = event.epoch,
          .rank = event.rank,
          .place = event.place,
          .host = event.host,
          .step = event.step,
          .cause = event.cause};
}

}  // namespace corro::launch
