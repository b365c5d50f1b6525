#include "kube/operator/job_worker.h"

#include <utility>

#include <fmt/format.h>

#include "base/unix_time.h"
#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/reconcile.h"
#include "kube/reconcile/status_draft.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

/// A cluster that does not keep what is written is not asked more often.
constexpr Duration kRetryForeignSchema = std::chrono::seconds(30);

JobIdentity identity_of(const Json& job) {
  return {text_at(job, {"kind"}), text_at(job, {"metadata", "namespace"}),
          text_at(job, {"metadata", "name"}), text_at(job, {"metadata", "uid"})};
}

Json describe(const JobIdentity& job) {
  return {{"job", fmt::format("{} {}/{}", job.kind, job.space, job.name)}};
}

/// True if the server has dropped what was written: its CustomResourceDefinition is another.
bool was_pruned(const Action& action, const Json& answer) {
  const Json& written = object_in(action.body, "status");
  const Json& kept = object_in(answer, "status");
  for (const char* field : {"observedGeneration", "state", "members", "round"}) {
    const auto value = written.find(field);
    if (value != written.end() && !value->is_null() && !kept.contains(field)) return true;
  }
  return false;
}

void ask(JobRecord& record, const std::string& api_version, const ObjectName& object) {
  record.expected.ask(api_version, object, record.known_uid(object));
}

void expect(JobRecord& record, const Action& action) {
  if (action.kind == ActionKind::kCreate) ask(record, action.api_version, action.object);
  if (action.kind == ActionKind::kDelete)
    record.expected.deleted.insert(text_in(object_in(action.body, "preconditions"), "uid"));
}

/// Of a create, or of the get that stands for its answer. Without an answer it stays asked, even
/// if a list has come in between.
void note_create(JobRecord& record, const Expectations::Asked& asked, const Outcome& outcome) {
  if (outcome.ended == Ended::kDone)
    return record.expected.answer(text_at(outcome.answer, {"metadata", "uid"}));
  if (outcome.ended == Ended::kFailed) return ask(record, asked.api_version, asked.object);
  record.expected.drop_asked();
}

void note_outcome(JobRecord& record, const Action& action, const Outcome& outcome) {
  if (action.kind == ActionKind::kCreate)
    note_create(record, {action.api_version, action.object}, outcome);
  if (action.kind == ActionKind::kDelete && outcome.ended != Ended::kDone)
    record.expected.deleted.erase(text_in(object_in(action.body, "preconditions"), "uid"));
}

}  // namespace

/// One look at one job, while it lasts.
struct JobWorker::Look {
  GuardedJob record;
  JobIdentity job;
  Json status = {};                    ///< As it was decided on, or written since.
  int64_t generation = 0;              ///< Of the job's manifest, as it was decided on.
  bool failed = false;                 ///< Again soon.
  std::optional<Duration> again = {};  ///< Again after so long.
};

JobWorker::JobWorker(JobWorkerOptions options, JobTable& table, WorkQueue& queue,
                     Performer& performer, OperatorMetrics& metrics, OperatorLog& log,
                     std::function<bool()> leads)
    : options_(std::move(options)),
      table_(table),
      queue_(queue),
      performer_(performer),
      metrics_(metrics),
      log_(log),
      leads_(std::move(leads)) {}

KubeTime JobWorker::now() const { return std::chrono::floor<std::chrono::seconds>(wall_now()); }

Decision JobWorker::decide(Look& look) const {
  auto record = look.record->lock();
  if (record->job.is_null()) return {};
  const ReadJob read = kube::read_job(record->job, options_.read);
  look.status = object_in(record->job, "status");
  look.generation = read.spec.generation;
  const KubeTime time = now();
  return reconcile(read, record->observe(options_.jobs, time), time);
}

void JobWorker::look(const std::string& key, const std::stop_token& stop) {
  Look look{table_.find(key), {}};
  if (look.record == nullptr) return queue_.done(key);
  look.job = identity_of(look.record->lock()->job);
  if (!look_up_unanswered(look, stop)) return queue_.failed(key);
  const Decision decision = decide(look);
  if (decision.look_again) look.again = time_until(*decision.look_again, wall_now());
  bool is_written = false;
  for (const Action& action : decision.actions) {
    // Events tell of what the status counts: the operator that wrote it says so, though it ends
    // meanwhile. A write cut off may have been made, and then nobody would.
    const bool is_event = action.kind == ActionKind::kEvent;
    const bool is_status = action.kind == ActionKind::kStatus;
    const bool ends = !leads_() || stop.stop_requested();
    if (ends && !(is_event && is_written)) continue;
    const bool is_done = perform(look, action, is_event || is_status ? std::stop_token() : stop);
    is_written = is_written || (is_done && is_status);
    if (!is_done && !stop.stop_requested()) break;
  }
  if (look.again) queue_.add_after(key, *look.again);
  if (const auto trial = look.record->lock()->next_trial(now()))
    queue_.add_after(key, time_until(*trial, wall_now()));
  look.failed ? queue_.failed(key) : queue_.done(key);
}

/// False if there is no answer yet.
bool JobWorker::look_up_unanswered(Look& look, const std::stop_token& stop) {
  const auto asked = look.record->lock()->expected.asked();
  if (!asked || look.job.uid.empty()) return true;
  const Outcome outcome =
      performer_.look_up(options_.kinds, look.job, asked->api_version, asked->object, stop);
  note_create(*look.record->lock(), *asked, outcome);
  return outcome.ended != Ended::kFailed;
}

bool JobWorker::perform(Look& look, const Action& action, const std::stop_token& stop) {
  expect(*look.record->lock(), action);
  Outcome outcome = performer_.perform(options_.kinds, look.job, action, stop);
  note_outcome(*look.record->lock(), action, outcome);
  if (outcome.ended != Ended::kDone) {
    Json fields = describe(look.job);
    fields["object"] = fmt::format("{} {}", action.object.kind, action.object.name);
    fields["why"] = outcome.message;
    if (outcome.ended != Ended::kStale) log_.warning("an action did not end well", fields);
  }
  // What an event says stands in a condition too.
  if (action.kind == ActionKind::kEvent) return true;
  return settle(look, action, std::move(outcome), stop);
}

/// Notes how an action ended. False if the rest of the decision is void.
bool JobWorker::settle(Look& look, const Action& action, Outcome outcome,
                       const std::stop_token& stop) {
  if (action.kind == ActionKind::kStatus && outcome.ended != Ended::kDone)
    take_job_from_server(look, stop);
  switch (outcome.ended) {
    case Ended::kStale:
    case Ended::kFailed:
      look.failed = true;
      return false;
    case Ended::kForeign:
      look.record->lock()->foreign[action.object] = now();
      look.again = Duration::zero();
      return false;
    case Ended::kRefused:
      look.record->lock()->refused[action.object] = {outcome.message, now(),
                                                     outcome.is_wrong ? look.generation : 0};
      look.again = Duration::zero();
      return false;
    case Ended::kDone:
      break;
  }
  look.record->lock()->refused.erase(action.object);
  if (action.kind != ActionKind::kStatus) return true;
  const bool is_pruned = was_pruned(action, outcome.answer);
  take_job(look, std::move(outcome.answer));
  if (!is_pruned) return true;
  Json fields = describe(look.job);
  fields["why"] =
      "the cluster's CustomResourceDefinition of this kind drops corro's fields: apply crds.yaml";
  log_.error("the status was not kept", fields);
  look.again = kRetryForeignSchema;
  return false;
}

void JobWorker::take_job(Look& look, Json job) {
  auto record = look.record->lock();
  if (record->job.is_null()) return;
  record->expected.status_written = now();
  note_status(look, job);
  put_job(*record, std::move(job));
}

void JobWorker::take_job_from_server(Look& look, const std::stop_token& stop) {
  auto job = performer_.read_job(look.job, stop);
  // 404: a watch will tell. Another job of that name is another record's.
  if (job.ok() && text_in(object_in(*job, "metadata"), "uid") == look.job.uid)
    take_job(look, std::move(*job));
}

/// Counts what has changed, and tells the log of a new state.
void JobWorker::note_status(Look& look, const Json& after) {
  const KubeTime time = now();
  const Json before = {{"status", std::exchange(look.status, object_in(after, "status"))}};
  const StatusDraft was(before, time);
  const StatusDraft is(after, time);
  for (const Cause cause : kCauses) {
    const int64_t more =
        is.count("restartCounts", name_of(cause)) - was.count("restartCounts", name_of(cause));
    if (more > 0) metrics_.restarted(name_of(cause), more);
  }
  if (was.text("state") == is.text("state")) return;
  Json fields = describe(look.job);
  fields["state"] = is.text("state");
  fields["was"] = was.text("state");
  log_.info("a job's state has changed", fields);
  const auto created = time_in(object_in(after, "metadata"), "creationTimestamp");
  const bool is_first = is.text("state") == "Running" && is.number("restarts") == 0 &&
                        was.text("state") != "Restarting";
  if (is_first && created) metrics_.started(time - *created);
}

}  // namespace corro::kube
