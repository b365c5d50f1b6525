#include "coordinator/coordinator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include "coordinator/gathering.h"
#include "coordinator/job_secret.h"
#include "coordinator/open_store.h"
#include "coordinator/tls_reception.h"
#include "coordinator/win_lead.h"
#include "diagnosis/exit_status.h"
#include "io/interfaces.h"
#include "kube/client/json.h"
#include "launch/plan_inputs.h"
#include "launch/progress.h"
#include "launch/run_job.h"

namespace corro::coordinator {
namespace {

using launch::JobRecord;

constexpr Duration kStandByPause = std::chrono::milliseconds(500);

void say(const std::string& line) { fmt::print(stderr, "corro coordinator: {}\n", line); }

/// Asks for the record as long as this one leads.
Result<std::string> read_record(coord::RecordStore& store, launch::Lead& lead) {
  auto text = store.read();
  for (; is_away(text.status(), /*was_let_in=*/true) && lead.lost().empty(); text = store.read()) {
    std::this_thread::sleep_for(kStandByPause);
    lead.keep(monotonic_now());
  }
  return text;
}

/// The record of the job that is to begin, or goes on.
Result<JobRecord> find_record(coord::RecordStore& store, launch::Lead& lead,
                              const std::string& round) {
  const std::string prefix = round.empty() ? "" : round + "-";
  CORRO_ASSIGN(const std::string text, read_record(store, lead));
  if (!text.empty()) {
    CORRO_ASSIGN(JobRecord found, launch::parse_record(text));
    if (found.job.starts_with(prefix)) return found;
  }
  JobRecord record{.job = prefix + launch::random_job_id(), .hosts = {}, .members = {}};
  lead.write(record);
  if (!lead.lost().empty()) return Status(Code::kAborted, lead.lost());
  return record;
}

/// One that has ended says how; none where it did not.
std::optional<launch::Ending> ending_of(const JobRecord& record, const std::string& store) {
  if (!record.over) return std::nullopt;
  say(record.ending
          ? fmt::format("the job in {} has ended with status {}; give another store for a new one",
                        store, record.ending->status)
          : fmt::format("the job in {} has ended; its coordinator did not come to say how", store));
  // Its coordinator was lost, so no rank is blamed.
  return record.ending.value_or(launch::Ending{
      .status = 1, .by_hosts = true, .why = "the coordinator did not come to say how it ended"});
}

/// Adds the round to what the operator of a cluster reads: a new round begins without ranks, and the
/// last progress of the round before may still stand.
std::string with_round(const std::string& progress, const std::string& round) {
  if (round.empty()) return progress;
  kube::Json json = kube::Json::parse(progress, nullptr, false);
  if (json.is_object()) json["round"] = round;
  return json.dump();
}

Outcome over(launch::Ending ending) { return {.status = ending.status, .job = std::move(ending)}; }

/// What the user asks for before the job has begun ends it for all coordinators.
Outcome end_job(launch::Lead& lead, JobRecord record, int signal) {
  record.over = true;
  record.ending = launch::Ending{.status = diagnosis::kSignalExit + signal,
                                 .why = "it was asked to end before it had begun"};
  lead.write(record);
  return over(*record.ending);
}

/// So many are waited for.
int slots_to_begin(const launch::RunOptions& run) {
  return run.ranks.value_or(run.least.value_or(1));
}

/// Leads the job from here on. kLeadLost: somebody else does.
Result<Outcome> lead_job(const CoordinatorOptions& options, launch::PlanInputs inputs,
                         coord::RecordStore& store, TlsReception& reception, launch::Lead& lead,
                         const Trust& trust) {
  auto found = find_record(store, lead, options.round);
  if (!found.ok()) {
    return found.status().with_context(fmt::format("--store {}: its record", options.store));
  }
  const JobRecord& record = *found;
  if (auto ending = ending_of(record, options.store)) return over(std::move(*ending));
  say(fmt::format("leads in term {}; agents dial {}", lead.term(), reception.address()));
  inputs.job_id = record.job;
  CORRO_ASSIGN(io::Loop loop, io::Loop::create());
  launch::Standalone standalone{
      .lead = lead, .reception = reception, .secret = ranks_secret(trust.secret, record.job)};
  standalone.show = [&store, &options](const std::string& progress) {
    store.show(with_round(progress, options.round));
  };
  if (record.members.empty()) standalone.show(launch::format_progress({}));  // Nobody steps.
  if (record.members.empty()) {
    std::optional<int> asked;
    auto hosts = gather(reception, lead, loop,
                        {.slots = slots_to_begin(options.run),
                         .job = wire::digest_of(record.job),
                         .patience = options.run.elastic_timeout,
                         .expected = options.expected},
                        asked);
    if (asked) return end_job(lead, record, *asked);
    CORRO_ASSIGN(inputs.dialled, std::move(hosts));
  } else {
    inputs.record = &record;
    standalone.record = record;
  }
  CORRO_ASSIGN(const launch::LaunchPlan plan, launch::make_plan(options.run, inputs));
  const int status = launch::run_job(plan, options.version, &standalone);
  return Outcome{.status = status, .job = std::move(standalone.ending)};
}

/// What is wrong with the options is said before anybody is waited for.
Status check_options(const CoordinatorOptions& options, launch::PlanInputs inputs) {
  inputs.dialled = {{.name = "host", .slots = slots_to_begin(options.run)}};
  return launch::make_plan(options.run, inputs).status();
}

int fail(const Status& status) {
  say(status.message());
  return diagnosis::kUsageExit;
}

}  // namespace

int run_coordinator(const CoordinatorOptions& options, const Variables& environment) {
  const auto secret = job_secret(environment);
  if (!secret.ok()) return fail(secret.status());
  return run_coordinator(options, launch::inputs_from_here(environment, options.own_directory),
                         {.find_key = keys_of_agents(*secret), .secret = *secret}, environment)
      .status;
}

Outcome run_coordinator(const CoordinatorOptions& options, launch::PlanInputs inputs,
                        const Trust& trust, const Variables& environment) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  const auto address = io::SocketAddress::parse(options.listen);
  if (!address.ok()) return {fail(address.status().with_context("--listen"))};
  auto store = open_store(options.store, environment);
  if (!store.ok()) return {fail(store.status().with_context("--store"))};
  if (const Status fits = check_options(options, inputs); !fits.ok()) return {fail(fits)};
  const auto term =
      win_lead(**store, {.name = fmt::format("{}, process {}", io::host_name(), getpid()),
                         .was_let_in = options.has_rights,
                         .say = say,
                         .pause = [] { std::this_thread::sleep_for(kStandByPause); }});
  if (!term.ok()) return {fail(term.status())};
  launch::Lead lead(**store, *term, monotonic_now());
  // Who stands by does not listen: agents dial who leads.
  auto reception = TlsReception::create(
      {.listen = *address, .find_key = trust.find_key, .version = options.version});
  if (!reception.ok()) return {fail(reception.status().with_context("--listen " + options.listen))};
  auto outcome = lead_job(options, std::move(inputs), **store, **reception, lead, trust);
  lead.keep(monotonic_now());
  const bool is_lost = outcome.ok() ? outcome->status == launch::kLeadLost : !lead.lost().empty();
  lead.resign();
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (is_lost) return {kStartAnew};
  return outcome.ok() ? *std::move(outcome) : Outcome{fail(outcome.status())};
}

}  // namespace corro::coordinator
