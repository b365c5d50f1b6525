// DialledAgents: agents that dial a standalone coordinator, and where they belong.
//
//   known      the job has the host, and had no agent there yet, or one that another coordinator
//              has led: the agent is that host's
//   new        the job has no such host: it comes while ranks run (host_watch.h)
//   newer      the host has an agent, and this is that of a pod that replaces its pod: the host is
//              lost, and comes once more; or it waits for that pod's ranks to leave
//   refused    the host has an agent, the agent has ranks of another job, or the host cannot be
//              used now
//
// Whoever dials once the job is over ends, too.
#pragma once

#include "launch/hearing.h"
#include "launch/job.h"
#include "launch/leadership.h"
#include "launch/standalone.h"

namespace corro::launch {

/// Loop-confined. All that it borrows outlives it.
class DialledAgents {
 public:
  DialledAgents(Job& job, const Leadership& leadership, Hearing& hearing, Standalone& standalone)
      : job_(job), leadership_(leadership), hearing_(hearing), standalone_(standalone) {}

  [[nodiscard]] Status listen();
  /// Closes connections on which nothing is said. To be called when it is due.
  void tick(Time now) { standalone_.reception.tick(now); }
  [[nodiscard]] Time due() const { return standalone_.reception.due(); }

 private:
  void receive(Reception::Dialled dialled);
  [[nodiscard]] Result<size_t> host_of(const Reception::Dialled& dialled);
  void replace(const AgentLink& link);
  Status attach(size_t host, Reception::Dialled dialled);

  Job& job_;
  const Leadership& leadership_;
  Hearing& hearing_;
  Standalone& standalone_;
};

}  // namespace corro::launch
