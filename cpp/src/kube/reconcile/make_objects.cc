#include "kube/reconcile/make_objects.h"

#include <fmt/format.h>

#include "kube/reconcile/agent_image.h"
#include "kube/reconcile/gang_change.h"
#include "kube/reconcile/head_rights.h"
#include "kube/reconcile/launcher_end.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

bool make_secrets(JobView& view) {
  bool made = true;
  const JobSpec& spec = view.spec;
  const int parts = secret_parts(spec.workers_with_keys());
  for (int part = 0; part < parts; ++part) {
    made &= view.ensure(
        {"Secret", secret_name(spec, part * kMembersInSecret)},
        [&] { return credentials_secret(spec, part); }, Fill::kCredentials,
        members_of_secret(spec, part));
  }
  if (spec.ssh_mount_path.empty()) return made;
  return made &
         view.ensure(
             {"Secret", ssh_secret_name(spec)}, [&] { return ssh_secret(spec); }, Fill::kSshKeys);
}

std::vector<int> running_workers(const JobView& view) {
  std::vector<int> running;
  for (int i = 0; i < view.spec.workers; ++i) {
    const PodView* pod = view.current(Member::kWorker, i);
    if (pod != nullptr && pod->phase == PodPhase::kRunning && !pod->is_deleting)
      running.push_back(i);
  }
  return running;
}

bool make_config(JobView& view) {
  if (!view.spec.is_mpi()) return true;
  const Json wanted = config_map(view.spec, running_workers(view), view.options);
  const Json* there = view.object("ConfigMap", config_name(view.spec));
  if (there == nullptr)
    return view.ensure({"ConfigMap", config_name(view.spec)},
                       [&wanted]() -> Json { return Json(wanted); });
  if (object_in(*there, "data") != wanted["data"])
    view.patch(*there, Json::object({{"data", wanted["data"]}}));
  return true;
}

bool make_head_rights(JobView& view) {
  bool made = true;
  if (!view.spec.is_elastic()) return made;
  for (const Json& object : head_rights(view.spec)) {
    const ObjectName name{text_in(object, "kind"), text_in(object_in(object, "metadata"), "name")};
    made &= view.ensure(name, [&object] { return Json(object); });
  }
  return made;
}

bool make_pod_group(JobView& view) {
  if (view.gang.gang == Gang::kOff) return true;
  if (!view.gang.missing.empty()) {
    view.block("GangNotServed",
               fmt::format("the cluster does not serve {}'s PodGroup", view.gang.missing));
    return false;
  }
  const Json wanted = pod_group(view.spec, view.gang, view.options);
  const Json* there = view.object("PodGroup", view.gang.group);
  if (there == nullptr)
    return view.ensure({"PodGroup", view.gang.group}, [&wanted]() -> Json { return Json(wanted); });
  // Fields of others are left alone.
  const Json change = merge_patch_between(Json::object({{"spec", object_in(*there, "spec")}}),
                                          Json::object({{"spec", wanted["spec"]}}));
  Json additions = Json::object();
  for (const auto& [field, value] : object_in(change, "spec").items()) {
    if (!value.is_null() || field == "minResources") additions[field] = value;
  }
  if (!additions.empty()) view.patch(*there, Json::object({{"spec", std::move(additions)}}));
  return true;
}

/// Name of an older generation's pod that was not even asked to end, or that was made and no watch
/// has shown yet; "" if there is none. No member has two pods at work.
std::string living_predecessor(const JobView& view, Member member, int index, int generation) {
  for (const PodView& pod : view.pods) {
    if (pod.member == member && pod.index == index && pod.generation < generation &&
        view.is_alive(pod))
      return pod.name;
  }
  if (generation == 0) return "";
  std::string last = pod_name(view.spec, member, index, generation - 1);
  return view.is_expected("Pod", last) ? last : "";
}

}  // namespace

bool make_objects(JobView& view) {
  const JobSpec& spec = view.spec;
  bool made = make_secrets(view);
  made &= view.ensure({"Service", head_service_name(spec)}, [&] { return head_service(spec); });
  made &= view.ensure({"Service", spec.name}, [&] { return host_service(spec); });
  made &= make_config(view);
  made &= make_head_rights(view);
  if (!spec.is_mpi())
    made &= view.ensure({"NetworkPolicy", spec.name}, [&] { return network_policy(spec); });
  made &= make_pod_group(view);
  if (!made || !head_address(view).empty()) return made;
  view.block("HeadAddressPending",
             fmt::format("Service {} has no address yet", head_service_name(spec)));
  return false;
}

void make_pods(JobView& view) {
  Options options = view.options;
  options.agent_image = choose_agent_image(view);
  const PodContext context{view.spec, options, gang_to_join(view), head_address(view),
                           static_cast<int>(view.status.number("round"))};
  make_member(view, context, Member::kHead, 0);
  for (int i = 0; i < view.spec.workers; ++i) make_member(view, context, Member::kWorker, i);
  make_launcher(view, context, static_cast<int>(ready_workers(view).size()));
}

void make_member(JobView& view, const PodContext& context, Member member, int index) {
  const MemberState state = view.state(member, index);
  if (state.done || view.find(member, index, state.generation) != nullptr) return;
  const std::string name = pod_name(view.spec, member, index, state.generation);
  if (const std::string old = living_predecessor(view, member, index, state.generation);
      !old.empty())
    return view.block("ReplacingPod", fmt::format("{} is made once {} is deleted", name, old));
  if (state.not_before && view.now < *state.not_before) {
    view.look_again(*state.not_before);
    return view.block("BackOff",
                      fmt::format("{} is made at {}", name, time_text(*state.not_before)));
  }
  view.ensure({"Pod", name}, [&]() -> Json {
    switch (member) {
      case Member::kHead:
        return head_pod(context, state.generation);
      case Member::kWorker:
        return worker_pod(context, index, state.generation);
      case Member::kLauncher:
        return launcher_pod(context, state.generation);
    }
    return {};
  });
}

std::string head_address(const JobView& view) {
  const Json* service = view.object("Service", head_service_name(view.spec));
  if (service == nullptr) return "";
  const std::string address = text_in(object_in(*service, "spec"), "clusterIP");
  if (address.empty() || address == "None") return "";
  const bool is_v6 = address.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", address, kHeadPort)
               : fmt::format("{}:{}", address, kHeadPort);
}

std::vector<int> ready_workers(const JobView& view) {
  std::vector<int> ready;
  for (int i = 0; i < view.spec.workers; ++i) {
    const PodView* pod = view.current(Member::kWorker, i);
    if (pod != nullptr && pod->is_ready) ready.push_back(i);
  }
  return ready;
}

}  // namespace corro::kube
