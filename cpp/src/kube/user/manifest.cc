#include "kube/user/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/job/resource_totals.h"

namespace corro::kube {
namespace {

constexpr int kKeepSeconds = 24 * 3600;  ///< What has ended, with its logs.
constexpr Billionths kOnePiece = 1'000'000'000;
constexpr size_t kMostName = 40;  ///< Of a program, within a job's name.

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

Status wrong(const char* option, const std::string& value, const std::string& what) {
  return {Code::kInvalidArgument, fmt::format("{} {}: {}", option, value, what)};
}

/// Of an option that counts ranks.
Result<int> pods_for(const char* option, int ranks, int slots) {
  if (ranks < 1) return wrong(option, std::to_string(ranks), "has to be at least 1");
  if (ranks % slots == 0) return ranks / slots;
  return wrong(option, std::to_string(ranks), fmt::format("no multiple of --slots {}", slots));
}

/// Adds the volume of the `number`th --volume, and its mount.
Status add_volume(const std::string& text, size_t number, Json& pod) {
  const size_t colon = text.find(":/");
  const std::string claim = text.substr(0, colon);
  std::string path = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool is_read_only = path.ends_with(":ro");
  if (is_read_only) path.resize(path.size() - 3);
  if (claim.empty() || path.size() < 2 || path.find(':') != std::string::npos)
    return wrong("--volume", text,
                 "give the name of a PersistentVolumeClaim and a path, CLAIM:/path");
  const std::string name = fmt::format("volume-{}", number);
  pod["volumes"].push_back(
      {{"name", name},
       {"persistentVolumeClaim", {{"claimName", claim}, {"readOnly", is_read_only}}}});
  pod["containers"][0]["volumeMounts"].push_back(
      {{"name", name}, {"mountPath", path}, {"readOnly", is_read_only}});
  return {};
}

Status add_resource(const std::string& text, Json& container) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    return wrong("--resource", text, "give a name and an amount, as cpu=4 or nvidia.com/gpu=1");
  const std::string name = text.substr(0, equals);
  const std::string amount = text.substr(equals + 1);
  const auto parsed = parse_amount(amount);
  const bool has_digit = amount.find_first_of("0123456789") != std::string::npos;
  if (!parsed || !has_digit)
    return wrong("--resource", text,
                 fmt::format("{} is no amount: give one such as 4, 0.5, 500m or 8Gi", amount));
  // Such as GPUs.
  if (name.find('/') != std::string::npos && *parsed % kOnePiece != 0)
    return wrong("--resource", text, fmt::format("{} come as a whole", name));
  Json& resources = container["resources"];
  resources["requests"][name] = amount;
  // Processors are shared where nobody else wants them.
  if (name != "cpu") resources["limits"][name] = amount;
  return {};
}

Result<Json> pod_of(const ClusterRun& run) {
  Json container = {{"name", "train"}, {"image", run.image}, {"command", run.command}};
  for (const auto& [name, value] : run.env)
    container["env"].push_back({{"name", name}, {"value", value}});
  for (const std::string& resource : run.resources) CORRO_TRY(add_resource(resource, container));
  Json pod = {{"containers", Json::array({std::move(container)})}};
  for (size_t i = 0; i < run.volumes.size(); ++i) CORRO_TRY(add_volume(run.volumes[i], i, pod));
  return pod;
}

Result<Json> worker_of(const ClusterRun& run) {
  Json worker = {{"slots", run.slots}};
  CORRO_ASSIGN(worker["target"], pods_for("-np", run.ranks, run.slots));
  if (run.least || run.most) {
    const int least = run.least.value_or(run.ranks);
    const int most = run.most.value_or(run.ranks);
    CORRO_ASSIGN(worker["min"], pods_for("--min-np", least, run.slots));
    CORRO_ASSIGN(worker["max"], pods_for("--max-np", most, run.slots));
    if (least > run.ranks)
      return wrong("--min-np", std::to_string(least), fmt::format("more than -np {}", run.ranks));
    if (most < run.ranks)
      return wrong("--max-np", std::to_string(most), fmt::format("less than -np {}", run.ranks));
  }
  CORRO_ASSIGN(worker["template"]["spec"], pod_of(run));
  return worker;
}

}  // namespace

std::string folder_in_pods(const std::string& folder) {
  const size_t end = folder.find_last_not_of('/');
  const std::string path = folder.substr(0, end == std::string::npos ? 0 : end + 1);
  std::string name = path.substr(path.rfind('/') + 1);
  std::ranges::replace(name, ':', '-');
  return "/workspace/" + (name.empty() || name == "." || name == ".." ? "work" : name);
}

std::string name_of_run(const std::string& program, const std::string& chance) {
  std::string name;
  const std::string file = program.substr(program.rfind('/') + 1);
  for (const char c : file.substr(0, file.find('.'))) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const char lower = is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    if (name.size() == kMostName) break;
    if (is_lower(lower) || (is_digit(lower) && !name.empty())) {
      name += lower;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  if (name.empty()) name = "run";
  return name + (name.back() == '-' ? "" : "-") + chance;
}

Result<Json> job_of(const ClusterRun& run) {
  Json spec = {{"ttlSecondsAfterFinished", kKeepSeconds}};
  CORRO_ASSIGN(spec["worker"], worker_of(run));
  if (!run.sync.empty()) spec["sync"] = folder_in_pods(run.sync);
  if (run.timeout) spec["activeDeadlineSeconds"] = std::max<int64_t>(1, run.timeout->count());
  // Nobody who looks on wants it to begin again: as at home.
  spec["restart"]["userError"]["limit"] = 0;
  Json metadata = {{"name", run.name}};
  if (!run.space.empty()) metadata["namespace"] = run.space;
  return Json{{"apiVersion", "training.corro.dev/v1"},
              {"kind", "CorroJob"},
              {"metadata", std::move(metadata)},
              {"spec", std::move(spec)}};
}

}  // namespace corro::kube
