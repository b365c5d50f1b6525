#include "kube/reconcile/injection.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/reconcile/head_rights.h"

namespace corro::kube {
namespace {

constexpr const char* kProgram = "/corro/bin/corro";
constexpr const char* kProgramPath = "/corro/bin";
constexpr const char* kProgramVolume = "corro-bin";
constexpr const char* kTokenPath = "/corro/token";
constexpr const char* kTokenVolume = "corro-token";
constexpr const char* kInitName = "corro-agent";
/// In the agent's image: not below /corro, where volumes of this pod are mounted.
constexpr const char* kProgramInImage = "/bin/corro";
constexpr int kNobody = 65532;
/// Where the head of a CorroJob, which runs the ranks, keeps their logs.
constexpr const char* kRunPath = "/tmp";
constexpr const char* kRunVolume = "corro-run";

/// The folder in which that of `corro run --sync` is.
constexpr const char* kWorkPath = "/workspace";
constexpr const char* kWorkVolume = "corro-workspace";

/// What Pod Security *restricted* asks of a container.
Json restricted_context() {
  return Json::object({{"allowPrivilegeEscalation", false},
                       {"capabilities", Json::object({{"drop", Json::array({"ALL"})}})},
                       {"readOnlyRootFilesystem", true},
                       {"runAsNonRoot", true},
                       {"runAsUser", kNobody},
                       {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}});
}

Json resources(const char* cpu, const char* memory, const char* most_cpu, const char* most_memory) {
  return Json::object({{"requests", Json::object({{"cpu", cpu}, {"memory", memory}})},
                       {"limits", Json::object({{"cpu", most_cpu}, {"memory", most_memory}})}});
}

Json mount(const char* volume, const char* path, bool read_only) {
  return Json::object({{"name", volume}, {"mountPath", path}, {"readOnly", read_only}});
}

int part_of(int index) { return index / kMembersInSecret; }

/// A worker or launcher sees its own key alone.
Json token_volume(const JobSpec& spec, const std::string& member, int index) {
  const Json items = Json::array({Json::object({{"key", member}, {"path", "key"}})});
  return Json::object({{"name", kTokenVolume},
                       {"secret", Json::object({{"secretName", secret_name(spec, index)},
                                                {"defaultMode", 0444},
                                                {"items", items}})}});
}

/// The head sees the key of every part: what is in one is proved by that.
Json head_token_volume(const JobSpec& spec) {
  Json sources = Json::array();
  for (int part = 0; part < secret_parts(spec.workers_with_keys()); ++part) {
    const std::string path = part == 0 ? "key" : fmt::format("key-{}", part);
    Json secret =
        Json::object({{"name", secret_name(spec, part * kMembersInSecret)},
                      {"items", Json::array({Json::object({{"key", "head"}, {"path", path}})})}});
    sources.push_back(Json::object({{"secret", std::move(secret)}}));
  }
  return Json::object(
      {{"name", kTokenVolume},
       {"projected", Json::object({{"defaultMode", 0444}, {"sources", std::move(sources)}})}});
}

void add_identity(const JobSpec& spec, const Identity& identity, Json& container) {
  add_variable(container, "CORRO_JOB", spec.name);
  add_variable(container, "CORRO_JOB_UID", spec.uid);
  add_variable(container, kMemberVariable, member_key(identity.member, identity.index));
  add_variable(container, "CORRO_MEMBER_GENERATION", std::to_string(identity.generation));
  if (const int part = part_of(identity.index); part > 0)
    add_variable(container, "CORRO_PART", std::to_string(part));
  add_variable(container, "CORRO_KIND", spec.kind_name());
  if (!identity.head_address.empty()) add_variable(container, "CORRO_HEAD", identity.head_address);
}

/// Of an elastic job, whose head is a coordinator and whose workers' agents dial it.
void add_limits(const JobSpec& spec, Json& container) {
  add_variable(container, "CORRO_MIN_WORKERS", std::to_string(spec.least_workers));
  add_variable(container, "CORRO_MAX_WORKERS", std::to_string(spec.most_workers));
}

bool is_blank_or_sshd(const Json& command) {
  if (!command.is_array() || command.empty() || !command[0].is_string()) return true;
  const std::string program = command[0];
  return program.empty() || program == "sshd" || program.ends_with("/sshd");
}

/// The agent, and after "--" the command that is its child.
Json agent_command(const Json& child) {
  Json command = Json::array({kProgram, "agent", "--pod"});
  if (child.empty()) return command;
  command.push_back("--");
  for (const Json& word : child) command.push_back(word);
  return command;
}

void add_empty_volume(Json& pod_spec, const char* name) {
  append(pod_spec, "volumes", Json::object({{"name", name}, {"emptyDir", Json::object()}}));
}

/// Container 0 is the one that gets the folder, or has it.
void add_workspace(const JobSpec& spec, Json& pod_spec) {
  if (spec.sync.empty()) return;
  add_empty_volume(pod_spec, kWorkVolume);
  append(pod_spec["containers"][0], "volumeMounts", mount(kWorkVolume, kWorkPath, false));
}

Json list_in(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() || !found->is_array() ? Json::array() : *found;
}

}  // namespace

void append(Json& object, std::string_view list, Json item) {
  Json& items = object[std::string(list)];
  if (!items.is_array()) items = Json::array();
  items.push_back(std::move(item));
}

void add_variable(Json& container, std::string_view name, std::string_view value) {
  append(container, "env", Json::object({{"name", name}, {"value", value}}));
}

void inject_agent(const JobSpec& spec, const Identity& identity, const Options& options,
                  Json& pod_spec) {
  const std::string member = member_key(identity.member, identity.index);
  add_empty_volume(pod_spec, kProgramVolume);
  append(pod_spec, "volumes", token_volume(spec, member, identity.index));
  Json init = Json::object({{"name", kInitName},
                            {"image", options.agent_image},
                            {"command", Json::array({kProgramInImage, "install", kProgramPath})},
                            {"resources", resources("10m", "16Mi", "1", "64Mi")},
                            {"securityContext", restricted_context()}});
  append(init, "volumeMounts", mount(kProgramVolume, kProgramPath, false));
  append(pod_spec, "initContainers", std::move(init));
  Json& container = pod_spec["containers"][0];
  append(container, "volumeMounts", mount(kProgramVolume, kProgramPath, true));
  append(container, "volumeMounts", mount(kTokenVolume, kTokenPath, true));
  add_identity(spec, identity, container);
  if (identity.member == Member::kWorker) add_workspace(spec, pod_spec);
  if (!spec.is_elastic()) return;
  add_variable(container, "CORRO_SLOTS", std::to_string(spec.slots));
  add_limits(spec, container);
}

void wrap_worker_command(const JobSpec& spec, Json& container) {
  const Json command = list_in(container, "command");
  // Real ssh was asked for: sshd is a child like any other, and the MPI Operator's default.
  const bool wants_sshd = !spec.ssh_mount_path.empty();
  Json child = command;
  if (wants_sshd && command.empty() && list_in(container, "args").empty())
    child = Json::array({"/usr/sbin/sshd", "-De"});
  const bool alone = child.empty() || (is_blank_or_sshd(child) && !wants_sshd);
  if (alone) {
    container["command"] = agent_command(Json::array());
    container.erase("args");
    return;
  }
  for (const Json& word : list_in(container, "args")) child.push_back(word);
  container["command"] = agent_command(child);
  container.erase("args");
}

bool wrap_launcher_command(Json& container) {
  Json child = list_in(container, "command");
  if (child.empty()) return false;
  for (const Json& word : list_in(container, "args")) child.push_back(word);
  container["command"] = agent_command(child);
  container.erase("args");
  return true;
}

Json head_pod_spec(const JobSpec& spec, int generation, int round, const Options& options) {
  Json container = Json::object(
      {{"name", "head"},
       {"image", options.agent_image},
       {"command",
        Json::array({kProgramInImage, "head", "--listen", fmt::format("0.0.0.0:{}", kHeadPort)})},
       {"ports", Json::array({Json::object({{"name", "corro"}, {"containerPort", kHeadPort}})})},
       {"resources", resources("20m", "32Mi", "1", "256Mi")},
       {"securityContext", restricted_context()}});
  add_identity(spec, {Member::kHead, 0, generation, ""}, container);
  add_variable(container, "CORRO_SLOTS", std::to_string(spec.slots));
  // An MPIJob's head learns of hosts when mpirun names them; a CorroJob's starts so many.
  if (!spec.is_mpi() && !spec.is_elastic())
    add_variable(container, "CORRO_WORKERS", std::to_string(spec.workers));
  if (spec.is_elastic()) {
    // Why it cannot begin stands in its log alone.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError";
    add_limits(spec, container);
    add_variable(container, "CORRO_STORE", record_store(spec));
    add_variable(container, "CORRO_ROUND", std::to_string(round));
  }
  if (!spec.sync.empty()) add_variable(container, "CORRO_SYNC", spec.sync);
  append(container, "volumeMounts", mount(kTokenVolume, kTokenPath, true));
  if (!spec.is_mpi()) append(container, "volumeMounts", mount(kRunVolume, kRunPath, false));
  Json pod = Json::object({{"restartPolicy", "Never"},
                           {"automountServiceAccountToken", spec.is_elastic()},
                           {"enableServiceLinks", false},
                           {"containers", Json::array({std::move(container)})}});
  if (spec.is_elastic()) pod["serviceAccountName"] = head_rights_name(spec);
  append(pod, "volumes", head_token_volume(spec));
  if (!spec.is_mpi()) add_empty_volume(pod, kRunVolume);
  add_workspace(spec, pod);
  return pod;
}

}  // namespace corro::kube
