// Operator: makes the cluster what its MPIJobs and CorroJobs ask for, for as long as it leads.
//
//   follows     it takes part in the election, and does nothing else
//   discovers   it has become the leader. It asks what gangs the cluster serves, and asks again
//               until it is answered
//   lists       a thread for each kind of object lists it, and watches it from then on. No worker
//               runs yet: a decision on half a view would replace pods that are there
//   works       all kinds but the jobs themselves are listed. Each worker looks at one job at a
//               time (job_worker.h)
//   ends        it leads no more: watches and workers end, and it forgets all that it knows. Then
//               it follows again, or the election has ended, and run() returns
//
// So a leader never decides on anything older than its own list, and a follower costs nothing but
// its Lease.
//
// Workers do not wait for the lists of jobs, since a job that is not listed is not worked on. A
// kind of job that the cluster does not have yet is looked for again every 30 s, and holds up
// nobody. A kind of object that may not be read holds up all: without it no decision is safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "kube/client/election.h"
#include "kube/client/watch.h"
#include "kube/operator/job_worker.h"

namespace corro::kube {

struct OperatorOptions {
  std::string space = {};  ///< The namespace to work in; "" for all.
  int workers = 8;         ///< Jobs that are looked at at once, 1 to 256.
  Options jobs = {};       ///< `served` is found out.
  ReadOptions read = {};
  LeaseOptions lease = {};
};

class Operator {
 public:
  /// Borrows client and log. INVALID_ARGUMENT as check(LeaseOptions) says.
  [[nodiscard]] static Result<std::unique_ptr<Operator>> create(Client& client,
                                                                OperatorOptions options,
                                                                FillSecret fill, OperatorLog& log);

  /// Blocks until `stop` is requested; the Lease is released then. Fails with PERMISSION_DENIED if
  /// Leases are not allowed. Called once.
  [[nodiscard]] Status run(const std::stop_token& stop);

  // From any thread at any time.
  /// "" for a follower, and for a leader that has seen the whole cluster and hears of each change;
  /// else why not. A
  /// candidate that cannot read or write the Lease for longer than it lasts is neither.
  [[nodiscard]] std::string why_not_ready() const;
  /// For Prometheus.
  [[nodiscard]] std::string metrics_text() const;

 private:
  struct Phase {
    bool leads = false;
    bool is_over = false;  ///< The election has ended.
    int unlisted = 0;      ///< Kinds that were not listed yet; of a leader.
    std::map<std::string, std::string> forbidden = {};  ///< Kinds that may not be watched: why.
    Time answered{};                                    ///< The Lease was read or written then.
    std::string trouble = {};                           ///< Why it cannot be since.
    Time told{};                                        ///< The log was told so.
  };
  Operator(Client& client, OperatorOptions options, FillSecret fill, OperatorLog& log,
           std::unique_ptr<Election> election);

  /// Of each look at the Lease: what is in its way is logged at once, and every 30 s.
  void hear_of_lease(const Status& status);
  /// From becoming leader to ceasing to be.
  void lead(const std::stop_token& stop);
  /// The kinds of gangs that the cluster serves. Nothing if the operator ceased to lead before it
  /// knew.
  [[nodiscard]] std::optional<Served> discover(const std::stop_token& stop);
  [[nodiscard]] Result<Served> ask_what_is_served(const std::stop_token& stop);
  void note_watch(const Kind& kind, const Status& status);
  void watch_kind(const Kind& kind, WorkQueue& queue, const std::stop_token& stop);
  [[nodiscard]] JobTable::Touched take(const Kind& kind, WatchEvent event);
  void work(WorkQueue& queue, JobWorker& worker, const std::stop_token& stop);
  /// Blocks until this operator ceases to lead, or `is_enough` holds.
  template <typename Enough>
  void wait_while_leading(Enough&& is_enough);

  Client& client_;
  const OperatorOptions options_;
  OperatorLog& log_;
  const std::unique_ptr<Election> election_;
  OperatorMetrics metrics_;
  Performer performer_;
  JobTable table_;
  mutable Guarded<Phase> phase_;
  mutable Guarded<const WorkQueue*> queue_;  ///< Of a leader, for metrics; else null.
};

}  // namespace corro::kube
