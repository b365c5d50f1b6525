#include "kube/operator/operator.h"

#include <utility>

#include <fmt/format.h>

#include "base/stop.h"
#include "kube/client/json.h"
#include "kube/job/names.h"

namespace corro::kube {
namespace {

constexpr Duration kRetryWatch = std::chrono::seconds(30);
constexpr Duration kRetryDiscovery = std::chrono::seconds(2);

std::string selector_of(const Kind& kind) { return kind.is_job ? "" : std::string(kUidLabel); }

/// What an administrator can do about a kind that cannot be watched.
std::string_view advice(const Kind& kind, Code code) {
  if (code == Code::kPermissionDenied)
    return "the operator's role does not allow it: apply operator.yaml";
  if (kind.is_job) return "its CustomResourceDefinition is not there: apply crds.yaml";
  return "the cluster does not serve it";
}

}  // namespace

Result<std::unique_ptr<Operator>> Operator::create(Client& client, OperatorOptions options,
                                                   FillSecret fill, OperatorLog& log) {
  CORRO_ASSIGN(auto election, Election::create(client, options.lease));
  return std::unique_ptr<Operator>(
      new Operator(client, std::move(options), std::move(fill), log, std::move(election)));
}

Operator::Operator(Client& client, OperatorOptions options, FillSecret fill, OperatorLog& log,
                   std::unique_ptr<Election> election)
    : client_(client),
      options_(std::move(options)),
      log_(log),
      election_(std::move(election)),
      performer_(client, options_.lease.me, std::move(fill), metrics_) {}

void Operator::hear_of_lease(const Status& status) {
  constexpr Duration kTellAgain = std::chrono::seconds(30);
  const Time now = client_.surroundings().now();
  // Another was faster: the next look shows who.
  const bool answers = status.ok() || status.code() == Code::kAborted ||
                       status.code() == Code::kAlreadyExists || status.code() == Code::kCancelled;
  auto phase = phase_.lock();
  if (answers) {
    phase->answered = now;
    if (!phase->trouble.empty()) log_.info("the Lease answers again", Json::object());
    phase->trouble.clear();
    return;
  }
  if (phase->trouble.empty() || now >= phase->told + kTellAgain) {
    log_.warning("cannot take part in the election", {{"why", status.message()}});
    phase->told = now;
  }
  phase->trouble = status.message();
}

Status Operator::run(const std::stop_token& stop) {
  Status ended;
  phase_.lock()->answered = client_.surroundings().now();
  std::thread elector([&] {
    ended = election_->run(
        [&](bool leads, std::string_view reason) {
          log_.info(leads ? "leads" : "follows", {{"why", reason}});
          phase_.lock()->leads = leads;
          phase_.notify_all();
        },
        [this](const Status& status) { hear_of_lease(status); }, stop);
    phase_.lock()->is_over = true;
    phase_.notify_all();
  });
  for (;;) {
    {
      auto phase = phase_.lock();
      while (!phase->leads && !phase->is_over) phase.wait_for(std::chrono::hours(1));
      if (phase->is_over) break;
    }
    lead(stop);
  }
  elector.join();
  return ended.code() == Code::kCancelled ? Status() : ended;
}

template <typename Enough>
void Operator::wait_while_leading(Enough&& is_enough) {
  auto phase = phase_.lock();
  while (phase->leads && !phase->is_over && !is_enough(*phase))
    phase.wait_for(std::chrono::hours(1));
}

std::optional<Served> Operator::discover(const std::stop_token& stop) {
  for (;;) {
    const auto served = ask_what_is_served(stop);
    if (served.ok()) return *served;
    log_.warning("cannot learn what the cluster serves", {{"why", served.status().message()}});
    if (wait_for_stop(stop, kRetryDiscovery) || !election_->leads()) return {};
  }
}

/// A watch of what is not served would never list it, and nothing would begin.
Result<Served> Operator::ask_what_is_served(const std::stop_token& stop) {
  Served served;
  CORRO_ASSIGN(const Json groups, client_.get_path("/apis", stop));
  for (const Kind& kind : gang_kinds()) {
    if (!has_group(groups, kind)) continue;
    const auto resources = client_.get_path(fmt::format("/apis/{}", kind.api_version), stop);
    if (!resources.ok() && resources.status().code() == Code::kNotFound) continue;
    if (!resources.ok()) return resources.status();
    if (has_resource(*resources, kind)) add_gang(kind, served);
  }
  return served;
}

void Operator::lead(const std::stop_token& stop) {
  const std::optional<Served> served = discover(stop);
  if (!served) return;
  std::stop_source end;
  const std::stop_callback forward(stop, [&end] { end.request_stop(); });
  WorkQueue queue(client_.surroundings().now);
  JobWorkerOptions options{options_.jobs, options_.read, kinds_of(*served)};
  options.jobs.served = *served;
  const std::vector<Kind> kinds = options.kinds;
  JobWorker worker(std::move(options), table_, queue, performer_, metrics_, log_,
                   [this] { return election_->leads(); });
  *queue_.lock() = &queue;
  std::vector<std::thread> threads;
  for (const Kind& kind : kinds) {
    if (!kind.is_watched) continue;
    if (!kind.is_job) ++phase_.lock()->unlisted;
    threads.emplace_back([this, &kind, &queue, &end] { watch_kind(kind, queue, end.get_token()); });
  }
  wait_while_leading([](const Phase& phase) { return phase.unlisted == 0; });
  for (int i = 0; i < options_.workers; ++i)
    threads.emplace_back([this, &queue, &worker, &end] { work(queue, worker, end.get_token()); });
  wait_while_leading([](const Phase& /*phase*/) { return false; });
  end.request_stop();
  queue.close();
  for (std::thread& thread : threads) thread.join();
  *queue_.lock() = nullptr;
  phase_.lock()->unlisted = 0;
  phase_.lock()->forbidden.clear();
  table_.clear();
}

/// Of what may be listed and not watched no change is heard.
void Operator::note_watch(const Kind& kind, const Status& status) {
  const std::string name(kind.name);
  auto phase = phase_.lock();
  if (status.code() == Code::kPermissionDenied) {
    phase->forbidden[name] =
        fmt::format("cannot watch {}: {}; {}", name, status.message(), advice(kind, status.code()));
  } else {
    phase->forbidden.erase(name);
  }
}

void Operator::watch_kind(const Kind& kind, WorkQueue& queue, const std::stop_token& stop) {
  bool is_listed = kind.is_job;  // Nobody waits for those.
  const auto note_listed = [&] {
    if (std::exchange(is_listed, true)) return;
    --phase_.lock()->unlisted;
    phase_.notify_all();
  };
  const auto on_event = [&](WatchEvent event) {
    const bool is_list = event.kind == WatchEvent::Kind::kResynced;
    const bool is_trouble = event.kind == WatchEvent::Kind::kTrouble;
    if (!is_list && !is_trouble) note_watch(kind, {});
    for (const std::string& key : take(kind, std::move(event))) queue.add(key);
    if (is_list) note_listed();
  };
  do {
    const WatchRequest request{kind.type, options_.space, {selector_of(kind), ""}};
    const Status ended = watch(client_, request, on_event, stop);
    if (stop.stop_requested()) return;
    note_watch(kind, ended);
    log_.error(
        "cannot watch",
        {{"kind", kind.name}, {"why", ended.message()}, {"advice", advice(kind, ended.code())}});
    // Of a definition that has gone since it was asked for there are no objects.
    if (ended.code() == Code::kNotFound) note_listed();
  } while (!wait_for_stop(stop, kRetryWatch));
}

JobTable::Touched Operator::take(const Kind& kind, WatchEvent event) {
  switch (event.kind) {
    case WatchEvent::Kind::kAdded:
    case WatchEvent::Kind::kModified:
      return table_.changed(kind, std::move(event.object));
    case WatchEvent::Kind::kDeleted:
      return table_.gone(kind, event.object);
    case WatchEvent::Kind::kResynced:
      return table_.resynced(kind, std::move(event.objects));
    case WatchEvent::Kind::kRefused:
      log_.error("an object is too large", {{"kind", kind.name}, {"name", event.name}});
      break;
    case WatchEvent::Kind::kTrouble:
      log_.warning("a watch was interrupted",
                   {{"kind", kind.name}, {"why", event.trouble.message()}});
      break;
    case WatchEvent::Kind::kBookmark:
      break;
  }
  return {};
}

void Operator::work(WorkQueue& queue, JobWorker& worker, const std::stop_token& stop) {
  while (const auto work = queue.take()) {
    metrics_.looked(work->waited);
    worker.look(work->key, stop);
  }
}

std::string Operator::why_not_ready() const {
  auto phase = phase_.lock();
  if (phase->is_over) return "the election has ended";
  if (phase->leads && !phase->forbidden.empty()) return phase->forbidden.begin()->second;
  if (phase->leads) return phase->unlisted == 0 ? "" : "not all kinds are listed yet";
  const bool waits = client_.surroundings().now() < phase->answered + options_.lease.duration;
  return waits || phase->trouble.empty() ? "" : phase->trouble;
}

std::string Operator::metrics_text() const {
  OperatorGauges gauges;
  gauges.leads = election_->leads();
  for (const std::string& key : table_.keys()) {
    const GuardedJob job = table_.find(key);
    if (job == nullptr) continue;
    auto record = job->lock();
    const std::string state = text_at(record->job, {"status", "state"});
    const std::string kind = text_at(record->job, {"kind"});
    if (!kind.empty()) ++gauges.jobs[{kind, state.empty() ? "Unseen" : state}];
  }
  {
    auto queue = queue_.lock();
    if (*queue != nullptr) {
      const WorkQueue::Backlog backlog = (*queue)->backlog();
      gauges.due = backlog.due;
      gauges.oldest = backlog.oldest;
    }
  }
  return metrics_.text(gauges);
}

}  // namespace corro::kube
