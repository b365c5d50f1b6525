// FlightQueue: the flights of a lane in the order of their op ids.
//
// Ids have no gap, so a flight's place follows from its id. Flights end in any order; one that is
// over stays until all before it are over too, and completed() moves past all of them at once. That
// is what fabrics hear of: below completed(), lines, stages and keys may be used again.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>

#include "runtime/flight.h"

namespace corro::runtime {

/// A flight that is over stays until all before it are over too. Loop-confined.
class FlightQueue {
 public:
  /// The id that the next operation gets.
  [[nodiscard]] uint64_t next_op() const { return next_op_; }
  uint64_t take_op() { return next_op_++; }
  /// Operations below this are over.
  [[nodiscard]] uint64_t completed() const {
    return flights_.empty() ? next_op_ : flights_.front()->op;
  }
  [[nodiscard]] bool empty() const { return flights_.empty(); }
  [[nodiscard]] size_t size() const { return flights_.size(); }
  [[nodiscard]] auto begin() const { return flights_.begin(); }
  [[nodiscard]] auto end() const { return flights_.end(); }

  /// Ids ascend without a gap.
  Flight& push(std::unique_ptr<Flight> flight) {
    flights_.push_back(std::move(flight));
    return *flights_.back();
  }
  /// The flight, started or not, that is not over; or null.
  [[nodiscard]] Flight* find(uint64_t op) const {
    if (op < completed() || op >= next_op_) return nullptr;
    Flight* flight = flights_[op - completed()].get();
    return flight->over ? nullptr : flight;
  }
  /// An operation that this rank has still to start, or to submit.
  [[nodiscard]] bool is_to_come(uint64_t op) const { return op >= next_op_ || find(op) != nullptr; }
  /// Forgets the oldest that are over; true if there were any.
  bool sweep() {
    const size_t before = flights_.size();
    while (!flights_.empty() && flights_.front()->over) flights_.pop_front();
    return flights_.size() < before;
  }
  void clear() { flights_.clear(); }
  /// A started operation waits for a line that others have to free.
  [[nodiscard]] bool waits_for_lines() const {
    return std::any_of(flights_.begin(), flights_.end(), [](const auto& flight) {
      return !flight->over && flight->operation != nullptr &&
             flight->operation->phase() == obs::Phase::kQueued;
    });
  }

 private:
  uint64_t next_op_ = 0;
  std::deque<std::unique_ptr<Flight>> flights_;
};

}  // namespace corro::runtime
