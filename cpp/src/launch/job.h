// Job: what all parts of a launcher work on (launcher.h names them). run_job() owns it; it outlives
// the launcher and its parts, which borrow it. Whatever only one of them needs is a member of that
// part.
//
// Members are made from top to bottom and die from bottom to top: what borrows comes after what is
// borrowed. Handlers that parts have given the loop or the agents are called only in the launcher's
// turns of the loop, and never once its parts are gone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/loop.h"
#include "launch/agents.h"
#include "launch/caller.h"
#include "launch/control_socket.h"
#include "launch/host_watch.h"
#include "launch/job_course.h"
#include "launch/job_display.h"
#include "launch/job_output.h"
#include "launch/meeting.h"
#include "launch/plan.h"
#include "launch/policy_command.h"

namespace corro::launch {

/// Loop-confined.
struct Job {
  /// What can fail while it is opened.
  struct Opened {
    LaunchPlan plan;
    std::string version;
    io::Loop loop;
    Agents agents;
    std::optional<Caller> caller;
    JobOutput::Files files;
    std::unique_ptr<screen::ScreenWriter> writer;
    std::shared_ptr<PolicyCommand> policy;  ///< Null: none.
    JobDisplay::Opened display;
  };

  explicit Job(Opened opened);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// What is said of this host is no matter of the job's yet.
  [[nodiscard]] bool awaits(const AgentLink& link) const {
    return hosts && hosts->expects(link.host);
  }
  /// Hosts may come and go now.
  [[nodiscard]] bool watches_hosts() const { return hosts && course.evolves(); }

  const Time started = monotonic_now();
  LaunchPlan plan;
  const std::string version;  ///< Of corro; all agents have to be of the same.
  io::Loop loop;
  Agents agents;
  Meeting meeting;
  std::optional<Caller> caller;            ///< None: somebody has typed `corro run`.
  std::shared_ptr<PolicyCommand> policy;   ///< Null: none. The course's policy shares it.
  std::unique_ptr<ControlSocket> control;  ///< Null if it cannot be opened.
  JobOutput output;
  JobCourse course;
  JobDisplay display;
  std::optional<HostWatch> hosts;  ///< Where hosts may come, once ranks run.
  /// Of this job without hosts that could not be used: another launcher begins it anew.
  std::optional<LaunchPlan> others;
};

}  // namespace corro::launch
