// ServedLinks: the aggregators of a job as one rank of it reaches them.
//
//   live   operations may be served. A connection that ends shows in lost()
//   over   after end(): all connections are closed, and aggregators see by that that this rank has
//          given them up. Nothing is served any more on this rank
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collective/served_messages.h"
#include "obs/metrics.h"
#include "transport/endpoint.h"

namespace corro::collective {

/// Loop-confined.
class ServedLinks {
 public:
  /// `streams`: to the aggregators, in the order that all ranks have agreed on. `group`: of this
  /// rank; its index counts them.
  ServedLinks(std::vector<std::unique_ptr<transport::Stream>> streams, const ServedGroup& group,
              const obs::Metrics& metrics);
  ~ServedLinks();
  ServedLinks(const ServedLinks&) = delete;
  ServedLinks& operator=(const ServedLinks&) = delete;

  [[nodiscard]] const ServedGroup& group() const { return group_; }
  [[nodiscard]] const obs::Metrics& metrics() const { return metrics_; }
  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(endpoints_.size()); }
  [[nodiscard]] transport::Endpoint& endpoint(int32_t index) const {
    return *endpoints_[static_cast<size_t>(index)];
  }
  /// Moves bytes; true if anything moved.
  bool progress();
  [[nodiscard]] bool lost() const;
  void end();
  /// A group or a plan is gone here, and its lane of data with it.
  void close_lane(const LaneKey& lane);
  /// Of the next operation of this rank, on whichever lane.
  [[nodiscard]] uint64_t take_number() { return next_++; }
  /// In a forked child: closes every descriptor without a word.
  void close_in_child();

 private:
  const ServedGroup group_;
  const obs::Metrics metrics_;
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints_;
  std::vector<Bytes> greetings_;
  std::vector<transport::SendRequest> sends_;  ///< Of these.
  uint64_t next_ = 1;
};

}  // namespace corro::collective
