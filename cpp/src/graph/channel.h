// Channel: one producer, n consumers, and a ring of preallocated slots; the slots are the
// producer's credits.
//
//   if (channel.can_write()) fill(channel.begin_write(generation));  ...  channel.end_write();
//   if (channel.can_read(0)) use(channel.front(0));                  ...  channel.release(0);
//
// A slot goes round: begin_write() opens a free slot, end_write() makes it readable, and the last
// consumer's release() frees it. Counters say where each party stands; between two calls of reset()
// none goes back:
//
//   oldest <= released[consumer] <= published <= first_free <= oldest + slots
//
// Initial slots are readable before anything was written: tokens. A producer without a free slot
// does not fire, which is how a slow consumer holds a fast producer back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "graph/service.h"

namespace corro::graph {

/// A producer has at most one slot open, a consumer reads at most one slot: a service never
/// overlaps itself, so slots are written, read and freed in ring order. Does not allocate after
/// construction. Loop-confined.
class Channel {
 public:
  /// `initial` slots are readable from the start (the channel's tokens).
  Channel(uint32_t slots, uint32_t consumers, uint32_t initial)
      : ring_(slots), released_(consumers) {
    CORRO_CHECK(slots > 0 && consumers > 0 && initial <= slots, slots, consumers, initial);
    initial_ = initial;
    reset({});
  }

  /// Returns to the first marking; the initial slots get the generations from `first` on.
  void reset(Generation first) {
    first_free_ = published_ = initial_;
    std::fill(released_.begin(), released_.end(), 0);
    oldest_ = 0;
    for (uint32_t i = 0; i < initial_; ++i) {
      ring_[i].generation = {.epoch = first.epoch, .micro = first.micro + i};
      ring_[i].size_bytes = ring_[i].data.size();
    }
  }

  [[nodiscard]] bool can_write() const { return first_free_ - oldest_ < ring_.size(); }
  /// Opens the next free slot for the producer. Requires can_write() and no slot open.
  Slot& begin_write(Generation generation) {
    CORRO_CHECK(can_write() && first_free_ == published_, first_free_, oldest_);
    Slot& slot = at(first_free_++);
    slot.generation = generation;
    slot.size_bytes = slot.data.size();
    return slot;
  }
  /// Makes the open slot readable to every consumer.
  void end_write() {
    CORRO_CHECK(published_ < first_free_, published_);
    ++published_;
  }

  [[nodiscard]] bool can_read(uint32_t consumer) const { return released_[consumer] < published_; }
  /// Returns the consumer's oldest readable slot. Requires can_read().
  [[nodiscard]] Slot& front(uint32_t consumer) {
    CORRO_CHECK(can_read(consumer), consumer);
    return at(released_[consumer]);
  }
  /// Gives the consumer's oldest slot back; it is free once every consumer has.
  void release(uint32_t consumer) {
    CORRO_CHECK(can_read(consumer), consumer);
    const uint64_t freed = released_[consumer]++;
    if (freed == oldest_) oldest_ = *std::min_element(released_.begin(), released_.end());
  }

  [[nodiscard]] Slot& slot(uint32_t index) { return ring_[index]; }
  [[nodiscard]] uint32_t slots() const { return static_cast<uint32_t>(ring_.size()); }
  [[nodiscard]] uint32_t initial() const { return initial_; }

 private:
  Slot& at(uint64_t position) { return ring_[position % ring_.size()]; }

  std::vector<Slot> ring_;
  std::vector<uint64_t> released_;  ///< Positions each consumer has given back, ever.
  uint64_t oldest_ = 0;             ///< Least of released_: below it, slots are free.
  uint64_t published_ = 0;          ///< Positions readable, ever.
  uint64_t first_free_ = 0;         ///< Positions opened by the producer, ever.
  uint32_t initial_ = 0;
};

}  // namespace corro::graph
