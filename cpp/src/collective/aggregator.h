// Aggregator: what a process does that owns shares of other processes' allreduces. No I/O of its
// own but that of the streams it is given, and no clock.
//
//   admitted   a rank's connection; its first message says of which group it is
//   waiting    the group is not complete
//   serving    every connection of the group is there. Calls come over all of them, in each one's
//              own order; the first call of an operation makes it, the others have to agree
//   over       a connection has ended, or said what no other can agree with, or the group of a
//              later epoch begins: all connections of the group are closed, by which ranks see it
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collective/operation/operation.h"
#include "collective/runner.h"
#include "collective/served_messages.h"
#include "transport/endpoint.h"

namespace corro::collective {

/// Loop-confined.
class Aggregator {
 public:
  Aggregator();
  ~Aggregator();
  Aggregator(const Aggregator&) = delete;
  Aggregator& operator=(const Aggregator&) = delete;

  /// A rank's connection, whose handshake is over.
  void admit(int32_t rank, std::unique_ptr<transport::Stream> stream);
  /// Moves everything; true if anything moved.
  bool poll();
  /// Operations that are over.
  [[nodiscard]] uint64_t served() const { return served_; }
  /// That are open.
  [[nodiscard]] size_t connections() const;

 private:
  class Connection;
  class Group;

  bool meet(std::unique_ptr<Connection>& connection);

  std::vector<std::unique_ptr<Connection>> admitted_;  ///< Of no group yet.
  std::map<uint32_t, std::unique_ptr<Group>> groups_;  ///< By epoch.
  uint64_t served_ = 0;
};

}  // namespace corro::collective
