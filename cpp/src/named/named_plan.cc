#include "named/named_plan.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace corro::named {

void RoundFinder::add(uint32_t number) {
  const uint64_t position = first_ + seen_.size();
  seen_.push_back({number, false});
  const auto before = last_.find(number);
  const bool numbered = number != NamedRef::kNone;
  if (numbered && length_ > 0 && at(position - length_).number == number) {
    ++matched_;
  } else {
    // The only round this operation can be the start of goes back to where it was last seen.
    const bool again = numbered && before != last_.end() && position - before->second <= kMaxRound;
    length_ = again ? position - before->second : 0;
    matched_ = again ? 1 : 0;
  }
  last_[number] = position;
  while (seen_.size() > 2 * kMaxRound) {
    const auto oldest = last_.find(seen_.front().number);
    if (oldest->second == first_) last_.erase(oldest);
    seen_.pop_front();
    ++first_;
  }
}

void RoundFinder::end_run() {
  if (!seen_.empty()) seen_.back().run_ends = true;
}

void RoundFinder::reset() { *this = RoundFinder(); }

std::vector<std::vector<uint32_t>> RoundFinder::segments() const {
  CORRO_CHECK(rounds() >= 2 && at_boundary(), rounds(), length_);
  std::vector<std::vector<uint32_t>> segments(1);
  std::unordered_set<uint32_t> distinct;
  const uint64_t end = first_ + seen_.size();
  for (uint64_t position = end - length_; position < end; ++position) {
    const Seen& now = at(position);
    if (!distinct.insert(now.number).second) return {};
    segments.back().push_back(now.number);
    if (now.run_ends && at(position - length_).run_ends && position + 1 < end)
      segments.emplace_back();
  }
  return segments;
}

FollowedPlan::FollowedPlan(uint32_t number, std::vector<NamedEntry> entries,
                           const std::vector<size_t>& segments, const FusionOptions& fusion,
                           std::vector<uint32_t> local_order)
    : number_(number),
      entries_(std::move(entries)),
      bucket_of_(entries_.size()),
      local_order_(std::move(local_order)) {
  std::vector<Fusible> list;
  for (const NamedEntry& entry : entries_) {
    index_of_.emplace(entry.name, static_cast<uint32_t>(list.size()));
    list.push_back(entry.op);
  }
  size_t first = 0;
  for (const size_t length : segments) {
    for (Bucket& bucket : fuse(std::span(list).subspan(first, length), fusion)) {
      for (BucketPart& part : bucket.parts) {
        part.index += static_cast<uint32_t>(first);
        bucket_of_[part.index] = static_cast<uint32_t>(buckets_.size());
      }
      buckets_.push_back({bucket.as_one, std::move(bucket.parts)});
    }
    first += length;
  }
  present_.resize(buckets_.size());
  consumed_.resize(buckets_.size());
}

std::optional<uint32_t> FollowedPlan::find(const std::string& name) const {
  const auto found = index_of_.find(name);
  if (found == index_of_.end()) return std::nullopt;
  return found->second;
}

bool FollowedPlan::take_turn(uint32_t index) {
  if (local_order_[turn_] != index) return false;
  turn_ = (turn_ + 1) % local_order_.size();
  return true;
}

uint64_t FollowedPlan::op_of(uint32_t index) const {
  const uint32_t bucket = bucket_of_[index];
  return first_op_ + consumed_[bucket] * buckets_.size() + bucket;
}

const PlannedBucket& FollowedPlan::bucket(uint64_t op) const { return buckets_[place(op)]; }

bool FollowedPlan::next_complete() const {
  return present_[place(next_op_)] == bucket(next_op_).parts.size();
}

void FollowedPlan::start_next() {
  ++consumed_[place(next_op_)];
  present_[place(next_op_)] = 0;
  ++next_op_;
}

void FollowedPlan::fail(uint64_t op) {
  ++consumed_[place(op)];
  present_[place(op)] = 0;
  failed_.insert(op);
}

void FollowedPlan::skip_failed() {
  while (failed_.erase(next_op_) > 0) ++next_op_;
}

}  // namespace corro::named
