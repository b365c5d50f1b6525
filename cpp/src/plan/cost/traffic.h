// How long groups of ranks take to exchange bytes, from how they lie on hosts.
#pragma once

#include <cstdint>

#include "plan/cluster/cluster.h"
#include "plan/cost/calibration.h"

namespace corro::plan {

/// How one group of ranks lies on hosts. Ranks that a job numbers tensor first, then context,
/// data, pipeline, fill hosts one after the other, so a group of every `stride`-th rank does, too.
struct GroupSpan {
  uint32_t ranks = 1;
  uint32_t per_host = 1;  ///< Its members on one host.
  uint32_t sharers = 1;   ///< Groups of the same kind that use one host's network at a time.
  double network = 0;     ///< Bytes/s between its hosts, if a placement says so; 0: as usual.
  [[nodiscard]] bool inside_host() const { return per_host >= ranks; }
};

/// `stride`: ranks from one member to the next; `host_devices`: ranks of a host, at least 1.
[[nodiscard]] GroupSpan span_of(uint32_t ranks, uint32_t stride, uint32_t host_devices);

/// The links that ranks of one kind of host see, calibrated. All results in seconds.
class Traffic {
 public:
  Traffic(const HostGroup& hosts, Link between_hosts, const Calibration& calibration);

  /// Every rank ends with the sum of `bytes`. A ring (Patarasuk and Yuan, "Bandwidth optimal
  /// all-reduce algorithms", 2009): 2 (n-1)/n of the bytes pass its narrowest link.
  [[nodiscard]] double allreduce(double bytes, const GroupSpan& span) const;
  /// Every rank ends with `bytes`, of which it had one n-th. As long as a reducescatter.
  [[nodiscard]] double allgather(double bytes, const GroupSpan& span) const;
  /// Every rank sends `bytes`, the n-th part to each.
  [[nodiscard]] double alltoall(double bytes, const GroupSpan& span) const;
  /// From one rank to another; `across`: on another host, where all ranks of the host send at once.
  /// `placed`: bytes/s between them, if a placement says so; 0: as usual.
  [[nodiscard]] double send(double bytes, bool across, uint32_t senders, double placed = 0) const;

 private:
  [[nodiscard]] double network(double placed) const {
    return placed > 0 ? placed * efficiency_ : network_;
  }
  /// Bytes/s of one group's ring.
  [[nodiscard]] double rate(const GroupSpan& span) const;

  double link_;
  double network_;
  double efficiency_;  ///< Of a network.
  double seconds_;     ///< Until a collective is under way.
};

}  // namespace corro::plan
