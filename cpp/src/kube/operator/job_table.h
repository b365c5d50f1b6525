// JobTable: what the operator knows of each job and of all that belongs to it, as the watches tell
// it. A job and its objects are found by its key, namespace/uid: each object has the uid as a
// label.
//
//   watches   table.changed(kind, object), table.gone(kind, object), table.resynced(kind, objects)
//             say which job is to be looked at
//   a worker  auto job = table.find(key); job->lock()->...
//
// The story of a job here: it appears with the first object that names it, it has its manifest once
// that was seen, and it is forgotten when neither the manifest nor an object is left.
//
// A manifest never goes back in time: a worker puts in the answer of its own write (put_job), which
// the watch may tell later than an older change. Versions of one object are compared as numbers,
// as the API has guaranteed since Kubernetes 1.35 and has always done.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "kube/operator/kinds.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

/// One job, and what its worker has to remember between two looks.
struct JobRecord {
  Json job = {};                            ///< Null before it was seen and once it is gone.
  std::map<ObjectName, Json> objects = {};  ///< Pods among them.
  Expectations expected = {};
  std::map<ObjectName, KubeTime> foreign = {};  ///< Since when a name is known to be taken.
  std::map<ObjectName, Refusal> refused = {};
  bool is_forgotten = false;  ///< No longer in the table: another record has taken its place.

  /// What a decision at `now` rests on. Borrows the record.
  [[nodiscard]] Observed observe(const Options& options, KubeTime now) const;
  /// "" if no watch has shown an object of that name.
  [[nodiscard]] std::string known_uid(const ObjectName& name) const;
  /// When a name that is taken now is tried again; no watch tells that it is free. Nothing if none
  /// is taken.
  [[nodiscard]] std::optional<KubeTime> next_trial(KubeTime now) const;
};

using GuardedJob = std::shared_ptr<Guarded<JobRecord>>;

/// Thread-safe.
class JobTable {
 public:
  /// The keys of jobs to be looked at.
  using Touched = std::set<std::string>;

  Touched changed(const Kind& kind, Json object);
  Touched gone(const Kind& kind, const Json& object);
  /// `objects` are all there are of the kind. What was expected of it is forgotten: it may have
  /// come and gone unseen.
  Touched resynced(const Kind& kind, std::vector<Json> objects);

  /// Null if nothing is known of the job.
  [[nodiscard]] GuardedJob find(const std::string& key) const;
  /// The keys of all that are known.
  [[nodiscard]] std::vector<std::string> keys() const;
  void clear() { jobs_.lock()->clear(); }

 private:
  [[nodiscard]] GuardedJob make(const std::string& key);
  void keep(const Kind& kind, const std::string& key, Json object);
  /// Takes away what of the kind the record has and `is_there` does not know.
  void drop_others(const Kind& kind, const std::string& key, const std::set<std::string>& there);
  void forget_if_empty(const std::string& key);

  mutable Guarded<std::map<std::string, GuardedJob>> jobs_;
};

/// Takes a newer state of the job in place of the one that is known.
void put_job(JobRecord& record, Json job);

}  // namespace corro::kube
