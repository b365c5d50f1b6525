// EtcdStore: a record store in etcd v3, for coordinators of many hosts.
//
//   EtcdStore store(std::move(client), "/corro/job7");   // etcd_client.h
//   CORRO_ASSIGN(const auto term, store.try_lead("host1, process 4711"));
//
// Two keys:
//
//   PREFIX/leader   the leader's name; there while somebody leads, since it is bound to the lease
//   PREFIX/record   the record
//
// The term is the revision in which etcd made the leader's key. It grows with every change of
// anything in the cluster, so a later lead has a higher term. (A cluster that was restored from a
// backup counts from the backup on: agents that have seen more refuse its terms.)
//
// A write is a transaction. The record changes only if the leader's key was made in the revision of
// this lead, and if the record was changed last in the revision that this one knows of. Without the
// second condition a write whose answer was lost could be carried out late, over a newer record of
// the same leader. Where it fails, this one learns the revision and writes again.
//
// The lease is one of kLeaseTime and is kept alive by renew(). The lead counts from before the
// request that renewed it, since etcd counts from some moment after that. When etcd's own leader
// changes, etcd makes leases longer, never shorter.
//
// A request whose answer is lost may have been carried out. Of try_lead() then a key may be left
// with this one's name, until its lease ends. All others may be made again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "coord/record_store.h"
#include "coordinator/etcd_client.h"

namespace corro::coordinator {

/// Each call asks etcd for 1.5 s at most, whichever number of endpoints there is.
class EtcdStore final : public coord::RecordStore {
 public:
  /// Does not connect. `prefix` is without a slash at its end.
  EtcdStore(EtcdClient client, std::string prefix, std::function<Time()> now = monotonic_now);

  [[nodiscard]] Result<std::optional<uint64_t>> try_lead(const std::string& name) override;
  [[nodiscard]] Result<std::string> leader() override;
  [[nodiscard]] Result<std::string> read() override;
  [[nodiscard]] Status write(const std::string& record) override;
  [[nodiscard]] Status renew() override;
  [[nodiscard]] Time leads_until() const override { return until_; }
  void resign() override;

 private:
  /// The key of whoever leads.
  struct Leader {
    uint64_t term = 0;  ///< 0: there is no such key.
    std::string name = {};
    std::string lease = {};
  };
  [[nodiscard]] Time call_end() const;
  [[nodiscard]] static Leader leader_in(const kube::Json& range);
  [[nodiscard]] Result<Leader> look(Time deadline);
  /// Makes the leader's key, bound to the lease, unless there is one. Returns whose it is then.
  [[nodiscard]] Result<Leader> put_leader(const std::string& name, const std::string& lease,
                                          Time deadline);
  /// ABORTED, and the lead is forgotten, unless it is this one's.
  [[nodiscard]] Status check(const Leader& leader);
  void forget_lead();
  /// Writes over the record of record_revision_. False if there is another one by now, which is
  /// known then; ABORTED without the lead.
  [[nodiscard]] Result<bool> write_over(const std::string& record, Time deadline);

  EtcdClient client_;
  const std::string prefix_;
  const std::string leader_key_;  ///< As etcd wants it, in base64.
  const std::string record_key_;
  const std::function<Time()> now_;
  uint64_t term_ = 0;  ///< 0 without the lead.
  std::string lease_;
  Time until_ = {};
  uint64_t record_revision_ = 0;  ///< In which the record was changed last; 0: never.
};

}  // namespace corro::coordinator
