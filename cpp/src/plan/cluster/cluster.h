// Cluster: on what a model is trained: devices in hosts, links between them.
//
//   CORRO_ASSIGN(const Cluster cluster, read_cluster(text, "cluster.yaml", nullptr));
//   const Link link = cluster.link_between_hosts(0, 9);
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace corro::plan {

inline constexpr uint32_t kMostDevices = 1U << 20U;

struct DeviceType {
  std::string name = {};
  double memory = 0;  ///< Bytes that a training process can have.
  /// FLOP/s of its matrix units by dtype; 0: it has none for that dtype.
  std::array<double, kDTypeCount> peak = {};
  double memory_bandwidth = 0;  ///< Bytes/s.
  double price = 0;             ///< Per device and hour, in any currency; 0: not known.
  bool operator==(const DeviceType&) const = default;
};

/// Bytes/s in each direction, and the seconds before the first byte.
struct Link {
  double bandwidth = 0;
  double latency = 0;
  bool operator==(const Link&) const = default;
};

/// `count` equal hosts.
struct HostGroup {
  std::string name = {};  ///< Of one host "name", of several "name0", "name1", ...
  uint32_t count = 1;
  uint32_t type = 0;         ///< Of its devices.
  uint32_t devices = 1;      ///< In each host.
  Link link = {};            ///< Between two devices of a host: what each can send at a time.
  Link network = {};         ///< Of the whole host: all its devices share it.
  Link to_host_memory = {};  ///< Of one device (offload); bandwidth 0: not known.
  double host_memory = 0;    ///< Bytes of a host that offloading may use.
  uint32_t first = 0;        ///< Of several: the number in the first one's name.
  uint32_t skip = 0;  ///< Hosts missing before the first one: their ports of switches are empty.
  bool operator==(const HostGroup&) const = default;
};

/// Hosts behind one switch: every `hosts` of them in file order, missing ones counted. Between two
/// switches of this level a host has at most this link.
struct SwitchLevel {
  uint32_t hosts = 0;
  Link between = {};
  bool operator==(const SwitchLevel&) const = default;
};

struct Cluster {
  std::string name = {};
  std::vector<DeviceType> types = {};
  std::vector<HostGroup> hosts = {};
  std::vector<SwitchLevel> switches = {};  ///< From the smallest to the largest.
  /// Measured bytes/s between hosts, row by row; empty: as `network` and `switches` say. The
  /// diagonal is not read.
  std::vector<double> matrix = {};

  [[nodiscard]] uint32_t host_count() const;
  [[nodiscard]] uint32_t device_count() const;
  /// The group of a host; hosts are numbered in file order from 0.
  [[nodiscard]] const HostGroup& group_of(uint32_t host) const;
  [[nodiscard]] std::string host_name(uint32_t host) const;
  /// The host of a device; devices are numbered host by host from 0. O(groups).
  [[nodiscard]] uint32_t host_of(uint32_t device) const;
  /// Between two hosts: the narrowest bandwidth and the longest latency on the way; the matrix, if
  /// there is one, says the bandwidth. Of a host and itself: its own link. O(groups).
  [[nodiscard]] Link link_between_hosts(uint32_t a, uint32_t b) const;
  /// The same cluster without one host; the others keep their names and their switches. Its number
  /// has to be less than host_count().
  [[nodiscard]] Cluster without_host(uint32_t host) const;

  bool operator==(const Cluster&) const = default;
};

}  // namespace corro::plan
