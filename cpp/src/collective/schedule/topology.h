// Topology: which ranks of a group share a host, and whether such ranks share memory.
//
//   const Topology topology({0, 0, 1, 1, 1});   // 2 + 3 ranks
//   for (int32_t rank : topology.ranks_on(1)) ...
//
// Where they share none (CORRO_TRANSPORT=tcp, a host with too many ranks), hosts say only which
// ranks use a link together: there is one level, and all ranks exchange messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace corro::collective {

/// Immutable value, the same on all ranks of a group.
class Topology {
 public:
  /// `hosts`: of each group rank, by any number; hosts are numbered anew by their lowest rank.
  /// Ranks of a host share memory.
  explicit Topology(std::span<const int32_t> hosts);
  /// The same hosts, whose ranks share no memory.
  [[nodiscard]] Topology without_shared_memory() const {
    Topology other = *this;
    other.shares_memory_ = false;
    return other;
  }
  /// All ranks on one host.
  [[nodiscard]] static Topology one_host(int32_t size) {
    return Topology(std::vector<int32_t>(static_cast<size_t>(size)));
  }

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(host_of_.size()); }
  [[nodiscard]] int32_t hosts() const { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] int32_t host_of(int32_t rank) const { return host_of_[static_cast<size_t>(rank)]; }
  /// The place of a rank among those of its host, from 0.
  [[nodiscard]] int32_t place_of(int32_t rank) const {
    return place_of_[static_cast<size_t>(rank)];
  }
  /// Ascending.
  [[nodiscard]] std::span<const int32_t> ranks_on(int32_t host) const {
    return ranks_[static_cast<size_t>(host)];
  }
  [[nodiscard]] int32_t size_of(int32_t host) const {
    return static_cast<int32_t>(ranks_on(host).size());
  }
  /// The ranks of a host share memory.
  [[nodiscard]] bool shares_memory() const { return shares_memory_; }
  /// Several hosts, and several ranks on one of them, which share memory.
  [[nodiscard]] bool two_levels() const {
    return shares_memory_ && hosts() > 1 && hosts() < size();
  }

 private:
  bool shares_memory_ = true;
  std::vector<int32_t> host_of_, place_of_;
  std::vector<std::vector<int32_t>> ranks_;  ///< By host.
};

}  // namespace corro::collective
