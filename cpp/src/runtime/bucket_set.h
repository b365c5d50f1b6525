// BucketSet: which buckets of gradients may be reduced, and when. It counts; no memory, no I/O.
//
//   BucketSet set({0, 0, 1}, {.passes = 1, .repeats = true});  // parts 0 and 1 in bucket 0
//   (void)set.ready(2);                                        // any thread
//   if (set.may_reduce(1, set.rounds_done(1))) ...             // the engine
//   set.close(); ... set.next();                               // the training thread
//
// Three parties use it at once:
//   threads that compute say ready(part) when a gradient has been added to the part's memory;
//   the training thread says close() when no more gradients come, and next() when it has used them;
//   the engine asks may_reduce() and says reduced().
//
// A generation is one step of an optimizer, from next() to next(). In a round every bucket is
// reduced once, and after them the map (number buckets()), which says what came on which rank. A
// generation has one round, or more:
//
//   open:   a bucket may be reduced once each of its parts has come `passes` times.
//   closed: by close(). Every bucket may be reduced; the engine zeroes parts that never came. Where
//           a part came more often, its memory holds a gradient on top of a sum that was, or will
//           have been, reduced. If the operation can be repeated, the same close() adds a round.
//   later:  parts that come now came too often in any case: the next close() adds a round.
//
// A rank that has joined has no gradients any more, and takes part in whatever rounds the others
// have, one after the other, as zeros. After the round in which all have joined, generations go on
// from one number on every rank.
//
// So the number of rounds follows from what the passes did, never from how far the engine is: ranks
// whose passes do the same have the same rounds, and word() lets the map find those that do not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace corro::runtime {

struct BucketRules {
  uint32_t passes = 1;  ///< How often a part comes in a generation; at least 1.
  bool repeats = true;  ///< The reduction may run again on its own result: an average.
};

/// ready() and the const methods: any thread. close() and next(): one thread at a time, after the
/// calls of ready() that belong to them. reduced(): the engine.
class BucketSet {
 public:
  /// `bucket_of` has the bucket of each part. Buckets are numbered from 0; each has a part.
  BucketSet(std::vector<uint32_t> bucket_of, const BucketRules& rules);

  [[nodiscard]] uint32_t parts() const { return static_cast<uint32_t>(bucket_of_.size()); }
  [[nodiscard]] uint32_t buckets() const { return buckets_; }

  enum class Ready : uint8_t {
    kCounted,
    kComplete,  ///< It was the last part of its bucket.
    kTooOften,  ///< Refused: its bucket counts as reduced, and that cannot be repeated.
  };
  /// Wait-free.
  Ready ready(uint32_t part);
  /// How often the part has come in this generation.
  [[nodiscard]] uint32_t came(uint32_t part) const {
    return came_[part].load(std::memory_order_acquire);
  }
  /// Whether the part has come in the passes that were closed last: since the generation began or,
  /// for rounds that were added to it later, since the close() before.
  [[nodiscard]] bool came_lately(uint32_t part) const {
    return came(part) > 0 && came_at_[part].load(std::memory_order_relaxed) ==
                                 passes_at_.load(std::memory_order_relaxed);
  }

  /// No more parts come in these passes.
  void close();
  /// Begins the next generation; false if the current one is open or not reduced.
  [[nodiscard]] bool next();
  [[nodiscard]] uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] bool closed() const { return rounds_asked() > first_round(); }

  /// Whether the bucket may be reduced in this round, numbered from 0 over all generations.
  [[nodiscard]] bool may_reduce(uint32_t bucket, uint64_t round) const;
  /// Whether the part is to be zeroed before its bucket is reduced in this round.
  [[nodiscard]] bool lacks(uint32_t part, uint64_t round) const {
    return joined() || (round == first_round() && came(part) == 0);
  }
  /// The same on all ranks that are in the same round of the same generation, and hardly on others.
  [[nodiscard]] uint64_t word(uint64_t round) const;
  /// No parts come here until all ranks have said so.
  void join() { joined_.store(true, std::memory_order_release); }
  [[nodiscard]] bool joined() const { return joined_.load(std::memory_order_acquire); }
  /// All buckets and the map have been reduced in a round of this rank, which has joined. `last`:
  /// so have all.
  void pass_round(bool last);
  /// The bucket, or the map, has been reduced once more.
  void reduced(uint32_t bucket) { done_[bucket].fetch_add(1, std::memory_order_release); }
  [[nodiscard]] uint64_t rounds_done(uint32_t bucket) const {
    return done_[bucket].load(std::memory_order_acquire);
  }

  /// Whether the bucket is reduced as often as it may be so far: also while it, or one before it,
  /// waits for parts.
  [[nodiscard]] bool settled(uint32_t bucket) const;
  /// The same of all buckets and the map.
  [[nodiscard]] bool all_settled() const;

 private:
  [[nodiscard]] uint64_t rounds_asked() const { return asked_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t first_round() const { return first_.load(std::memory_order_acquire); }
  /// The first bucket that waits for parts; with the map, buckets() + 1 if there is none.
  [[nodiscard]] uint32_t first_waiting() const;
  void expect_all();

  const std::vector<uint32_t> bucket_of_;
  const BucketRules rules_;
  uint32_t buckets_ = 0;
  std::vector<uint32_t> parts_in_;                    ///< By bucket.
  std::unique_ptr<std::atomic<uint32_t>[]> came_;     ///< By part, in this generation.
  std::unique_ptr<std::atomic<uint64_t>[]> came_at_;  ///< By part: rounds asked for before.
  std::unique_ptr<std::atomic<uint32_t>[]> missing_;  ///< By bucket: parts to come.
  std::unique_ptr<std::atomic<uint64_t>[]> done_;     ///< By bucket; the map's is the last.
  std::atomic<bool> again_{false};                    ///< A part came too often since close().
  std::atomic<bool> joined_{false};
  std::atomic<uint64_t> generation_{0};
  std::atomic<uint64_t> first_{0};  ///< The first round of this generation.
  std::atomic<uint64_t> asked_{0};  ///< Rounds that close() has asked for so far.
  /// Rounds asked for when the passes began that were closed last. close() stores it before asked_,
  /// by which the engine reads it.
  std::atomic<uint64_t> passes_at_{0};
};

}  // namespace corro::runtime
