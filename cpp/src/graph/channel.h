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
// A consumer that fires less often than the producer takes several slots at a time, one that fires
// more often reads each several times (Pace).
//
// Initial slots are readable before anything was written: tokens. A producer without a free slot
// does not fire, which is how a slow consumer holds a fast producer back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "graph/ends.h"
#include "graph/service.h"

namespace corro::graph {

/// A producer has at most one slot open, a consumer reads what one firing takes: a service never
/// overlaps itself, so slots are written, read and freed in ring order. Does not allocate after
/// construction. Loop-confined.
class Channel {
 public:
  /// `initial` slots are readable from the start (the channel's tokens). One slot is for so many
  /// generations: the producer's `every`.
  Channel(uint32_t slots, const std::vector<Pace>& consumers, uint32_t initial, uint32_t every = 1)
      : ring_(slots), released_(consumers.size()), initial_(initial), every_(every) {
    CORRO_CHECK(slots > 0 && !consumers.empty() && initial <= slots, slots, initial);
    for (const Pace& pace : consumers) readers_.push_back({.pace = pace});
    reset({});
  }

  /// Returns to the first marking; the initial slots get the generations from `first` on.
  void reset(Generation first) {
    first_free_ = published_ = initial_;
    std::fill(released_.begin(), released_.end(), 0);
    for (Reader& reader : readers_) reader.read = 0;
    oldest_ = 0;
    for (uint32_t i = 0; i < initial_; ++i) {
      ring_[i].generation = {.epoch = first.epoch, .micro = first.micro + (i + 1) * every_ - 1};
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

  [[nodiscard]] bool can_read(uint32_t consumer) const {
    return released_[consumer] + readers_[consumer].pace.takes <= published_;
  }
  /// Returns the oldest of the slots that the consumer's next firing reads, or one that follows it.
  /// Requires can_read() and place < takes().
  [[nodiscard]] Slot& front(uint32_t consumer, uint32_t place = 0) {
    CORRO_CHECK(can_read(consumer) && place < takes(consumer), consumer, place);
    return at(released_[consumer] + place);
  }
  /// Says that the consumer's firing has read what it takes. It gives back slots whose last reading
  /// that was; they are free once every consumer has.
  void release(uint32_t consumer) {
    CORRO_CHECK(can_read(consumer), consumer);
    Reader& reader = readers_[consumer];
    if (++reader.read < reader.pace.reads) return;
    reader.read = 0;
    const uint64_t freed = released_[consumer];
    released_[consumer] += reader.pace.takes;
    if (freed == oldest_) oldest_ = *std::min_element(released_.begin(), released_.end());
  }
  /// How many slots one firing of the consumer takes.
  [[nodiscard]] uint32_t takes(uint32_t consumer) const { return readers_[consumer].pace.takes; }
  /// Returns the generation that a slot which the producer fills in this one is for.
  [[nodiscard]] Generation read_in(Generation written) const {
    return {.epoch = written.epoch, .micro = written.micro + initial_ * every_};
  }

  [[nodiscard]] Slot& slot(uint32_t index) { return ring_[index]; }
  [[nodiscard]] uint32_t slots() const { return static_cast<uint32_t>(ring_.size()); }

 private:
  Slot& at(uint64_t position) { return ring_[position % ring_.size()]; }

  struct Reader {
    Pace pace;
    uint32_t read = 0;  ///< How often it has read its oldest slot.
  };

  std::vector<Slot> ring_;
  std::vector<Reader> readers_;     ///< By consumer.
  std::vector<uint64_t> released_;  ///< Positions each consumer has given back, ever.
  uint64_t oldest_ = 0;             ///< Least of released_: below it, slots are free.
  uint64_t published_ = 0;          ///< Positions readable, ever.
  uint64_t first_free_ = 0;         ///< Positions opened by the producer, ever.
  uint32_t initial_;
  uint32_t every_;
};

}  // namespace corro::graph
