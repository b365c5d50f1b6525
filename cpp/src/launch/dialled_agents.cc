#include "launch/dialled_agents.h"

#include <utility>

namespace corro::launch {

Status DialledAgents::listen() {
  return standalone_.reception.watch(
      job_.loop, [this](Reception::Dialled dialled) { receive(std::move(dialled)); });
}

void DialledAgents::receive(Reception::Dialled dialled) {
  if (!leadership_.holds()) return;
  const auto host = host_of(dialled);
  if (!host.ok()) return standalone_.reception.refuse(std::move(dialled), host.status());
  if (const Status status = attach(*host, std::move(dialled)); !status.ok())
    hearing_.lose(job_.agents[*host], status.message());
}

/// One that the job knows, and whose agent was not there yet; or a new one.
Result<size_t> DialledAgents::host_of(const Reception::Dialled& dialled) {
  CORRO_TRY(dialled.check_job(wire::digest_of(job_.plan.job.job_id)));
  const std::string& name = dialled.hello.host;
  for (const AgentLink& link : job_.agents.links()) {
    if (link.name != name || link.gone) continue;
    if (!link.greeted) return link.host;
    if (dialled.generation < link.generation) return Status(Code::kFailedPrecondition, kReplaced);
    if (dialled.generation == link.generation)
      return Status(Code::kFailedPrecondition, "an agent of host " + name + " is there already");
    // Its ranks leave between two steps.
    if (link.leaves) return Status(Code::kUnavailable, "the pod before it has not left yet");
    replace(link);
    break;
  }
  if (!job_.hosts) return Status(Code::kUnavailable, "the job begins just now");
  return job_.hosts->invite({.name = name, .slots = dialled.hello.slots});
}

/// Its pod may be gone, or cut off, and nothing of it was heard.
void DialledAgents::replace(const AgentLink& link) {
  if (!job_.awaits(link)) job_.agents.dismiss(link.host, kReplaced);
  hearing_.lose(link, kReplaced);
}

/// An agent that has dialled is that of this host.
Status DialledAgents::attach(size_t host, Reception::Dialled dialled) {
  CORRO_TRY(job_.agents.attach(host, std::move(dialled.pipe)));
  job_.agents[host].generation = dialled.generation;
  job_.agents.tell(host, agent::Lead{.term = standalone_.lead.term()});
  job_.agents.greet(host, dialled.hello);
  if (leadership_.over()) job_.agents.tell(host, agent::Fence{});
  return {};
}

}  // namespace corro::launch
