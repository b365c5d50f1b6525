#include "runtime/bucket_set.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace corro::runtime {
namespace {

template <typename T>
std::unique_ptr<std::atomic<T>[]> zeros(size_t count) {
  return std::make_unique<std::atomic<T>[]>(count);
}

}  // namespace

BucketSet::BucketSet(std::vector<uint32_t> bucket_of, const BucketRules& rules)
    : bucket_of_(std::move(bucket_of)), rules_(rules) {
  CORRO_CHECK(!bucket_of_.empty() && rules_.passes > 0, bucket_of_.size(), rules_.passes);
  buckets_ = *std::max_element(bucket_of_.begin(), bucket_of_.end()) + 1;
  parts_in_.resize(buckets_);
  for (const uint32_t bucket : bucket_of_) ++parts_in_[bucket];
  came_ = zeros<uint32_t>(bucket_of_.size());
  came_at_ = zeros<uint64_t>(bucket_of_.size());
  missing_ = zeros<uint32_t>(buckets_);
  done_ = zeros<uint64_t>(buckets_ + 1);
  expect_all();
}

void BucketSet::expect_all() {
  for (uint32_t part = 0; part < parts(); ++part) came_[part].store(0, std::memory_order_relaxed);
  for (uint32_t bucket = 0; bucket < buckets_; ++bucket)
    missing_[bucket].store(parts_in_[bucket], std::memory_order_relaxed);
}

BucketSet::Ready BucketSet::ready(uint32_t part) {
  came_at_[part].store(rounds_asked(), std::memory_order_relaxed);
  const uint32_t before = came_[part].fetch_add(1, std::memory_order_acq_rel);
  if (before >= rules_.passes || closed()) {
    if (!rules_.repeats) return Ready::kTooOften;
    again_.store(true, std::memory_order_release);
    return Ready::kCounted;
  }
  if (before + 1 < rules_.passes) return Ready::kCounted;
  // Releases this part's memory to whoever sees that nothing is missing.
  const uint32_t left = missing_[bucket_of_[part]].fetch_sub(1, std::memory_order_acq_rel);
  return left == 1 ? Ready::kComplete : Ready::kCounted;
}

void BucketSet::close() {
  const bool again = again_.exchange(false, std::memory_order_acq_rel);
  const uint64_t rounds = (closed() ? 0U : 1U) + (again ? 1U : 0U);
  if (rounds > 0) passes_at_.store(rounds_asked(), std::memory_order_relaxed);
  asked_.fetch_add(rounds, std::memory_order_release);
}

bool BucketSet::next() {
  const uint64_t asked = rounds_asked();
  if (!closed()) return false;
  for (uint32_t bucket = 0; bucket <= buckets_; ++bucket) {
    if (rounds_done(bucket) < asked) return false;
  }
  expect_all();
  again_.store(false, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  first_.store(asked, std::memory_order_release);  // From here on the engine looks at the counts.
  return true;
}

void BucketSet::pass_round(bool last) {
  const uint64_t done = rounds_done(buckets_);
  first_.store(done, std::memory_order_release);
  asked_.store(done, std::memory_order_release);
  if (!last) return;
  expect_all();
  again_.store(false, std::memory_order_relaxed);
  generation_.store(done, std::memory_order_release);
  joined_.store(false, std::memory_order_release);
}

bool BucketSet::may_reduce(uint32_t bucket, uint64_t round) const {
  if (joined()) return round == rounds_done(buckets_);
  const uint64_t first = first_round();
  if (round < rounds_asked()) return true;
  return round == first && bucket < buckets_ &&
         missing_[bucket].load(std::memory_order_acquire) == 0;
}

uint64_t BucketSet::word(uint64_t round) const {
  const uint64_t since = round - first_round();
  return generation() * 0x9e3779b97f4a7c15U + since * 0xc2b2ae3d27d4eb4fU;
}

uint32_t BucketSet::first_waiting() const {
  uint32_t bucket = 0;
  while (bucket <= buckets_ &&
         (rounds_done(bucket) != first_round() || may_reduce(bucket, first_round())))
    ++bucket;
  return bucket;
}

bool BucketSet::settled(uint32_t bucket) const {
  return bucket >= first_waiting() || !may_reduce(bucket, rounds_done(bucket));
}

bool BucketSet::all_settled() const {
  const uint32_t waiting = first_waiting();
  for (uint32_t bucket = 0; bucket < waiting; ++bucket) {
    if (may_reduce(bucket, rounds_done(bucket))) return false;
  }
  return true;
}

}  // namespace corro::runtime
