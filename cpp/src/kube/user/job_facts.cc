#include "kube/user/job_facts.h"

#include <algorithm>
#include <charconv>

#include "kube/job/names.h"

namespace corro::kube {
namespace {

const Json& condition_of(const Json& job, std::string_view type) {
  static const Json kNone = Json::object();
  const Json* conditions = value_at(job, {"status", "conditions"});
  if (conditions == nullptr || !conditions->is_array()) return kNone;
  const auto found = std::ranges::find_if(*conditions, [&](const Json& condition) {
    return text_at(condition, {"type"}) == type && text_at(condition, {"status"}) == "True";
  });
  return found == conditions->end() ? kNone : *found;
}

std::string label_of(const Json& pod, std::string_view name) {
  return text_at(pod, {"metadata", "labels", name});
}

/// State of the first container, in which a head or rank runs: "running", "terminated", or null.
const Json* state_of(const Json& pod, std::string_view state) {
  const Json* containers = value_at(pod, {"spec", "containers"});
  const Json* statuses = value_at(pod, {"status", "containerStatuses"});
  if (containers == nullptr || !containers->is_array() || containers->empty()) return nullptr;
  if (statuses == nullptr || !statuses->is_array()) return nullptr;
  const std::string name = text_at((*containers)[0], {"name"});
  const auto found = std::ranges::find_if(
      *statuses, [&](const Json& status) { return text_at(status, {"name"}) == name; });
  return found == statuses->end() ? nullptr : value_at(*found, {"state", state});
}

}  // namespace

JobFacts facts_of(const Json& job) {
  JobFacts facts;
  facts.has_succeeded = !condition_of(job, "Succeeded").empty();
  const Json& failed = condition_of(job, "Failed");
  facts.is_over = facts.has_succeeded || !failed.empty();
  facts.why = text_at(failed, {"message"});
  facts.was_too_long = text_at(failed, {"reason"}) == "DeadlineExceeded";
  facts.runs = text_at(job, {"status", "state"}) == "Running";
  const Json& pending = condition_of(job, "Pending");
  facts.waits_for = text_at(pending, {"message"});
  facts.is_wrong = text_at(pending, {"reason"}) == "CreateInvalid" && !facts.runs;
  if (facts.is_wrong) facts.why = facts.waits_for.substr(0, facts.waits_for.find("; tried again"));
  return facts;
}

bool is_elastic(const Json& job) { return value_at(job, {"spec", "worker", "min"}) != nullptr; }

int generation_of(const Json& pod) {
  const std::string text = label_of(pod, kGenerationLabel);
  int generation = 0;
  std::from_chars(text.data(), text.data() + text.size(), generation);
  return generation;
}

const Json* newest_head(const PodsByName& pods) {
  const Json* newest = nullptr;
  for (const auto& [name, pod] : pods) {
    const bool is_head = label_of(pod, kRoleLabel) == name_of(Member::kHead);
    const bool was_started =
        state_of(pod, "running") != nullptr || state_of(pod, "terminated") != nullptr;
    if (!is_head || !was_started) continue;
    if (newest == nullptr || generation_of(pod) > generation_of(*newest)) newest = &pod;
  }
  return newest;
}

std::optional<int> exit_status_of(const Json& job, const PodsByName& pods) {
  const std::string_view role = name_of(is_elastic(job) ? Member::kHead : Member::kWorker);
  const Json* last = nullptr;
  int generation = -1;
  for (const auto& [name, pod] : pods) {
    const Json* ended = state_of(pod, "terminated");
    if (label_of(pod, kRoleLabel) != role || ended == nullptr) continue;
    // The others of a round that fails are ended by signals, after the first.
    const bool is_first = generation_of(pod) == generation && last != nullptr &&
                          text_at(*ended, {"finishedAt"}) < text_at(*last, {"finishedAt"});
    if (generation_of(pod) < generation || (generation_of(pod) == generation && !is_first))
      continue;
    last = ended;
    generation = generation_of(pod);
  }
  const Json* code = last == nullptr ? nullptr : value_at(*last, {"exitCode"});
  if (code == nullptr || !code->is_number_integer()) return std::nullopt;
  return code->get<int>();
}

}  // namespace corro::kube
