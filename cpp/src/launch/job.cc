#include "launch/job.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

/// None: the job is not elastic.
std::optional<coord::Options> membership_options(const LaunchPlan& plan,
                                                 const std::shared_ptr<PolicyCommand>& policy) {
  const RunOptions& run = plan.options;
  if (!run.elastic()) return std::nullopt;
  coord::Options options{.least = run.least.value_or(plan.job.ranks), .most = plan.job.most};
  options.patience = run.elastic_timeout.value_or(kElasticTimeout);
  options.waits_for_hosts = run.waits_for_hosts;
  options.resets = run.reset_limit;
  coord::PolicyOptions waits;
  waits.replacement = run.replace_wait.value_or(Duration::zero());
  if (run.back_off) std::tie(waits.back_off, waits.most_back_off) = *run.back_off;
  options.policy = coord::standard_policy(waits);
  if (policy == nullptr) return options;
  options.policy = asked_policy(policy, options.policy,
                                [&plan](size_t host) { return plan.job.hosts[host].name; });
  return options;
}

JobCourse::Options course_options(const LaunchPlan& plan,
                                  const std::shared_ptr<PolicyCommand>& policy) {
  const RunOptions& run = plan.options;
  const bool several = !std::ranges::all_of(plan.job.hosts, &JobHost::own);
  return {.elastic = membership_options(plan, policy),
          .timeout = run.timeout,
          .long_wait = run.long_wait,
          .hang_timeout = run.hang_timeout,
          .several_hosts = several || plan.hosts_come(),
          .remembers = plan.dialled,
          .quiet = run.quiet,
          .verbose = run.verbose};
}

std::unique_ptr<ControlSocket> open_control(const std::string& job_id) {
  auto control = ControlSocket::create(job_id);
  return control.ok() ? std::move(*control) : nullptr;
}

}  // namespace

Job::Job(Opened opened)
    : plan(std::move(opened.plan)),
      version(std::move(opened.version)),
      loop(std::move(opened.loop)),
      agents(std::move(opened.agents)),
      meeting(plan, agents),
      caller(std::move(opened.caller)),
      policy(std::move(opened.policy)),
      control(open_control(plan.job.job_id)),
      output(plan, std::move(opened.files), std::move(opened.writer), caller ? caller->fd() : -1),
      course(plan.job, new_members(wire::digest_of(plan.job.job_id), plan.job.places()),
             course_options(plan, policy), started),
      display(std::move(opened.display), course, plan, output) {}

}  // namespace corro::launch
