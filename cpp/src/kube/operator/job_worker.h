// JobWorker: looks at one job once: reads what the table knows of it, decides (reconcile), performs
// the actions in their order and stops at the first that does not end well.
//
// The story of a look:
//   look up    what an earlier look asked for and got no answer to
//   decide     with the job's record locked; nothing is called meanwhile
//   perform    each action alone, without the lock. What a create or a delete leaves to be expected
//              is noted before the call, since a watch may tell of it before the answer comes
//   status     after it was written, or turned out stale, the job is taken anew from the server
//   end        at the latest time that the decision named, the job is looked at again; after a
//              failure soon, and ever later
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/job/read_job.h"
#include "kube/operator/job_table.h"
#include "kube/operator/operator_log.h"
#include "kube/operator/performer.h"
#include "kube/operator/work_queue.h"

namespace corro::kube {

struct JobWorkerOptions {
  Options jobs = {};
  ReadOptions read = {};
  std::vector<Kind> kinds = {};
};

/// Thread-safe; of each job one thread at a time, which the queue sees to.
class JobWorker {
 public:
  /// `leads` says before each write whether this operator may still write. Borrows all else.
  JobWorker(JobWorkerOptions options, JobTable& table, WorkQueue& queue, Performer& performer,
            OperatorMetrics& metrics, OperatorLog& log, std::function<bool()> leads);

  /// Looks at the job and tells the queue when to look again. Blocks for the calls.
  void look(const std::string& uid, const std::stop_token& stop);

 private:
  struct Look;
  [[nodiscard]] bool look_up_unanswered(Look& look, const std::stop_token& stop);
  [[nodiscard]] Decision decide(Look& look) const;
  [[nodiscard]] bool perform(Look& look, const Action& action, const std::stop_token& stop);
  [[nodiscard]] bool settle(Look& look, const Action& action, Outcome outcome,
                            const std::stop_token& stop);
  void take_job(Look& look, Json job);
  void take_job_from_server(Look& look, const std::stop_token& stop);
  void note_status(Look& look, const Json& after);
  [[nodiscard]] KubeTime now() const;

  const JobWorkerOptions options_;
  JobTable& table_;
  WorkQueue& queue_;
  Performer& performer_;
  OperatorMetrics& metrics_;
  OperatorLog& log_;
  const std::function<bool()> leads_;
};

}  // namespace corro::kube
