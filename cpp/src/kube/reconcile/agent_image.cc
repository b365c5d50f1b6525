#include "kube/reconcile/agent_image.h"

namespace corro::kube {
namespace {

bool has_pod(const JobView& view, Member member, int index) {
  const int generation = view.state(member, index).generation;
  return view.find(member, index, generation) != nullptr ||
         view.is_expected("Pod", pod_name(view.spec, member, index, generation));
}

bool has_launcher(const JobView& view) {
  if (!view.spec.launcher) return false;
  if (view.spec.launcher_is_pod()) return has_pod(view, Member::kLauncher, 0);
  const std::string name = launcher_host(view.spec);
  const Json* job = view.object("Job", name);
  if (job == nullptr) return view.is_expected("Job", name);
  return object_in(*job, "spec").value("suspend", Json()) != Json(true);
}

bool has_any_pod(const JobView& view) {
  if (has_pod(view, Member::kHead, 0) || has_launcher(view)) return true;
  for (int i = 0; i < view.spec.workers; ++i)
    if (has_pod(view, Member::kWorker, i)) return true;
  return false;
}

}  // namespace

std::string choose_agent_image(JobView& view) {
  constexpr const char* kField = "agentImage";
  std::string noted = view.status.text(kField);
  if (!noted.empty() && has_any_pod(view)) return noted;
  view.status.set(kField, view.options.agent_image);
  return view.options.agent_image;
}

}  // namespace corro::kube
