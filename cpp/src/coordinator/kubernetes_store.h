// KubernetesStore: a record store in the API server of a Kubernetes cluster.
//
//   KubernetesStore store(std::move(client), {"default", "job7"});   // kube/client/client.h
//   CORRO_ASSIGN(const auto term, store.try_lead("host1, process 4711"));
//
// Three objects, which are made where they are missing and that is allowed:
//
//   Lease NAME-head         who leads, as for other programs of a cluster: holderIdentity is the
//                           leader's name ("": it has resigned), leaseDurationSeconds is kLeaseTime,
//                           renewTime is written each second
//   ConfigMap NAME-record   binaryData.record, the record; data.term, the term of whoever wrote it;
//                           data.writes, a number that each write changes
//   ConfigMap NAME-progress data.progress, what people are shown
//
// Fields that others put beside these stay there.
//
// Each write carries the resourceVersion of the object that its writer has read, and the server
// refuses it if the object has another one by now. Nothing else of the API is relied on.
//
// Who leads. A candidate notes, by its own monotonic clock, when it first saw the Lease as it is. It
// takes a Lease that has no holder, or that has not changed for leaseDurationSeconds; times that
// stand in the Lease are never compared with a clock. The leader counts from before the request that
// renewed the Lease, and stops kLeaseMargin earlier. A candidate saw that renewal later than that,
// so two never lead at a time, whatever their clocks say, if these only run at one speed. A Lease
// that was renewed after a candidate has looked is another version, and cannot be taken.
// (A coordinator that has just started knows nothing: it waits for a whole lease that nobody
// renews.)
//
// The term is leaseTransitions: each lead writes one more than the Lease and the ConfigMap say,
// also if it has the same holder as the one before. Somebody who removes the Lease, and not the
// ConfigMap, changes nothing by that but who leads. After both are removed terms begin with 1, as
// for a new job: agents that have seen more refuse them. A lead is known by its term and the Lease's
// uid, not by its name.
//
// The record. No request of the API changes a ConfigMap only if a Lease says something. So a lead
// begins with a write of the ConfigMap: its term, and the record as it is. From then on the
// resourceVersion that an earlier leader knows is a past one, whether that leader was stopped, or a
// request of it is still on its way. If such a request is faster than try_lead()'s own write, that
// write is refused, try_lead() reads the ConfigMap again, and keeps what the earlier leader wrote.
//
// A write that is refused reads the ConfigMap, then the Lease, and is made again only if the Lease is
// still this one's. The order matters: who takes the Lease after that look writes the ConfigMap after
// it was read, and so the second attempt is refused, too. A ConfigMap with a higher term is left
// alone, whatever the Lease says.
//
// A write whose answer was lost may be carried out late, as with etcd: over the version that its
// writer knew, or not at all. The leader's next write carries the same version, so only one of them
// is. If that is the late one, the next write is refused, and made again over it. data.writes is
// needed for this: a write that changes nothing leaves the resourceVersion as it is, and the late
// one could follow it. When a lead ends, a late write can still come until the next lead begins.
//
// Of try_lead() a Lease may be left with this one's name, if an answer is lost. It ends by itself.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "coord/record_store.h"
#include "coordinator/kubernetes_object.h"
#include "kube/client/lease.h"

namespace corro::coordinator {

/// Each call asks the server for 1.5 s at most. A plug-in that a kubeconfig names for credentials
/// may take longer.
class KubernetesStore final : public coord::RecordStore {
 public:
  /// Does not connect. Uses the clocks of `client`. `job` is the namespace, and what the objects'
  /// names begin with.
  KubernetesStore(std::unique_ptr<kube::Client> client, const kube::ObjectKey& job);

  [[nodiscard]] Result<std::optional<uint64_t>> try_lead(const std::string& name) override;
  [[nodiscard]] Result<std::string> leader() override;
  [[nodiscard]] Result<std::string> read() override;
  [[nodiscard]] Status write(const std::string& record) override;
  [[nodiscard]] Status renew() override;
  [[nodiscard]] Time leads_until() const override { return until_; }
  void show(const std::string& progress) override;
  void resign() override;

 private:
  struct Lease {
    kube::Json object = {};
    kube::LeaseRecord spec = {};
    std::string uid = {};
  };
  [[nodiscard]] Time now() const { return client_->surroundings().now(); }
  [[nodiscard]] std::string wall_text() const;

  [[nodiscard]] Result<Lease> read_lease(Time deadline);
  [[nodiscard]] Result<Lease> put_lease(const Lease& over, kube::LeaseRecord spec, Time deadline);
  /// Reads the object, and notes since when it is as it is.
  [[nodiscard]] Result<Lease> note(kube::Json object);
  /// Somebody leads, as far as this one can know.
  [[nodiscard]] bool is_led(const Lease& lease) const;
  /// ABORTED, and the lead is forgotten, unless it is this one's.
  [[nodiscard]] Status check(const Lease& lease);

  /// Takes the Lease, and then the ConfigMap. Nothing if somebody else was faster.
  [[nodiscard]] Result<std::optional<uint64_t>> take_lead(const std::string& name,
                                                          const Lease& there, Time begin);
  /// Renews the lead, which counts from `begin`.
  [[nodiscard]] Status renew_from(Time begin);
  /// Writes this one's Lease with this holder. ABORTED without the lead.
  [[nodiscard]] Status put_own_lease(const std::string& holder, Time deadline);
  void resign_until(Time deadline);
  void forget_lead();

  /// Writes the ConfigMap in this one's term, with the record that is there or another one. ABORTED
  /// without the lead.
  [[nodiscard]] Status put_record(const std::optional<std::string>& record, Time deadline);
  /// Learns which ConfigMap is to be written over. ABORTED without the lead.
  [[nodiscard]] Status reread_record(Time deadline);
  [[nodiscard]] Result<uint64_t> term_in(const kube::Json& record_map) const;

  const std::string where_;  ///< For messages.
  const std::unique_ptr<kube::Client> client_;
  KubernetesObject lease_object_;
  KubernetesObject record_object_;
  KubernetesObject progress_object_;
  kube::LeaseView seen_;  ///< The Lease as it was seen last, and since when.

  uint64_t term_ = 0;  ///< 0 without the lead.
  Time until_ = {};
  Lease lease_ = {};            ///< With the lead: as this one knows it.
  kube::Json record_map_ = {};  ///< With the lead: the ConfigMap as this one knows it.
  uint64_t writes_ = 0;
};

}  // namespace corro::coordinator
