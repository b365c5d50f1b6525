#include "kube/user/job_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kube/client/pod_log.h"
#include "kube/client/watch.h"
#include "kube/job/names.h"
#include "kube/user/job_facts.h"
#include "kube/user/job_watch.h"

namespace corro::kube {
namespace {

constexpr size_t kColumns = 9;
using Row = std::array<std::string, kColumns>;

/// "3d", "5h", "12m" or "40s".
std::string age_of(const Json& job, std::chrono::sys_seconds now) {
  const auto made = parse_rfc3339(text_at(job, {"metadata", "creationTimestamp"}));
  if (!made) return "";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - *made).count();
  constexpr std::array<std::pair<int64_t, char>, 3> kUnits = {
      {{86400, 'd'}, {3600, 'h'}, {60, 'm'}}};
  for (const auto& [unit, letter] : kUnits)
    if (seconds >= unit) return fmt::format("{}{}", seconds / unit, letter);
  return fmt::format("{}s", std::max<int64_t>(seconds, 0));
}

std::string number_at(const Json& job, std::initializer_list<std::string_view> path) {
  const Json* value = value_at(job, path);
  if (value == nullptr || !value->is_number()) return "";
  return value->is_number_float() ? fmt::format("{:.3g}", value->get<double>()) : value->dump();
}

Row row_of(const Json& job, std::chrono::sys_seconds now) {
  return {text_at(job, {"metadata", "namespace"}),
          text_at(job, {"metadata", "name"}),
          text_at(job, {"status", "state"}),
          fmt::format("{}/{}", number_at(job, {"status", "ready"}),
                      number_at(job, {"spec", "worker", "target"})),
          number_at(job, {"status", "restarts"}),
          number_at(job, {"status", "progress", "ranks"}),
          number_at(job, {"status", "progress", "step"}),
          number_at(job, {"status", "progress", "stepsPerSecond"}),
          age_of(job, now)};
}

Result<Json> find_job(Client& client, const ObjectKey& key, const std::stop_token& stop) {
  auto job = client.get(kCorroJobs, key, stop);
  if (job.ok() || job.status().code() != Code::kNotFound) return job;
  return Status(Code::kNotFound, fmt::format("there is no job {} in namespace {}; corro jobs shows "
                                             "what there is",
                                             key.name, key.space));
}

Result<std::string> head_of(Client& client, const ObjectKey& key, const std::stop_token& stop) {
  CORRO_ASSIGN(const Json job, find_job(client, key, stop));
  const std::string label = std::string(kUidLabel) + "=" + text_at(job, {"metadata", "uid"});
  CORRO_ASSIGN(const ObjectList pods, client.list(kPods, key.space, {.labels = label}, stop));
  PodsByName by_name;
  for (const Json& pod : pods.objects) by_name[text_at(pod, {"metadata", "name"})] = pod;
  const Json* head = newest_head(by_name);
  if (head != nullptr) return text_at(*head, {"metadata", "name"});
  const std::string why = facts_of(job).waits_for;
  return Status(Code::kNotFound, fmt::format("job {} has no log: {}", key.name,
                                             why.empty() ? "its head does not run" : why));
}

Status read_log(Client& client, const ObjectKey& head, const LogManner& manner,
                const std::function<void(std::string_view)>& show, const std::stop_token& stop) {
  CORRO_ASSIGN(const std::string path, path_of(kPods, head, "log"));
  const std::string target =
      path + query_of({{"container", "head"},
                       {"tailLines",
                        manner.tail_lines ? std::to_string(*manner.tail_lines) : std::string()}});
  std::optional<Duration> retry;
  const auto hand_on = [&show](std::string_view bytes) {
    show(bytes);
    return Status();
  };
  return client.stream({"GET", target}, describe(kPods, head), {}, stop, hand_on, retry);
}

/// The same request can only fail again, or there is no job any more.
bool ends_autoscaling(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCancelled ||
         WatchCourse::is_final(status.code());
}

}  // namespace

std::string table_of_jobs(const std::vector<Json>& jobs, bool with_space,
                          std::chrono::sys_seconds now) {
  if (jobs.empty()) return "";
  std::vector<Json> sorted = jobs;
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const Json& job) {
    return text_at(job, {"metadata", "creationTimestamp"});
  });
  std::vector<Row> rows = {
      {"NAMESPACE", "NAME", "STATE", "READY", "RESTARTS", "RANKS", "STEP", "STEPS/S", "AGE"}};
  for (const Json& job : sorted) rows.push_back(row_of(job, now));
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = with_space ? 0 : 1; i < kColumns; ++i)
      line += fmt::format("{:<{}}", row[i], widths[i] + 3);
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  return table;
}

Result<std::vector<Json>> list_jobs(Client& client, const std::string& space,
                                    const std::stop_token& stop) {
  CORRO_ASSIGN(ObjectList list, client.list(kCorroJobs, space, {}, stop));
  return std::move(list.objects);
}

Status show_job_log(Client& client, const ObjectKey& job, const LogManner& manner,
                    const std::function<void(std::string_view)>& show,
                    const std::stop_token& stop) {
  CORRO_ASSIGN(const std::string head, head_of(client, job, stop));
  const ObjectKey pod{job.space, head};
  if (!manner.follows) return read_log(client, pod, manner, show, stop);
  const auto receive = [&show](std::string_view bytes) {
    show(bytes);
    return Status();
  };
  const LogRequest request{.pod = pod, .container = "head", .tail_lines = manner.tail_lines};
  return follow_log(client, request, receive, [](const Status&) {}, stop);
}

Status stop_job(Client& client, const ObjectKey& job, const std::stop_token& stop) {
  CORRO_TRY(find_job(client, job, stop).status());
  return client.remove(kCorroJobs, job, {}, stop);
}

Status scale_job(Client& client, const ObjectKey& job, int workers, const std::stop_token& stop) {
  CORRO_TRY(find_job(client, job, stop).status());
  const Json patch = {{"spec", {{"worker", {{"target", workers}}}}}};
  return client.merge_patch(kCorroJobs, job, patch, "", stop).status();
}

Status autoscale_job(Client& client, const ObjectKey& job, const AutoscalerOptions& options,
                     const std::function<void(const std::string&)>& say,
                     const std::stop_token& stop) {
  constexpr Duration kPause = std::chrono::seconds(5);
  CORRO_ASSIGN(Json seen, find_job(client, job, stop));
  Autoscaler autoscaler(options);
  while (!facts_of(seen).is_over) {
    CORRO_ASSIGN(const auto sizing, autoscaler.look(seen, client.surroundings().now()));
    if (sizing) {
      say(sizing->why);
      const Status scaled = scale_job(client, job, static_cast<int>(sizing->workers), stop);
      if (ends_autoscaling(scaled)) return scaled;
      if (!scaled.ok()) say(scaled.message());
    }
    if (client.surroundings().wait(kPause, stop)) return {Code::kCancelled, "stopped"};
    auto again = client.get(kCorroJobs, job, stop);
    if (again.ok()) {
      seen = std::move(*again);
    } else if (ends_autoscaling(again.status())) {
      return again.status();
    } else {
      say(again.status().message());
    }
  }
  return {};
}

}  // namespace corro::kube
