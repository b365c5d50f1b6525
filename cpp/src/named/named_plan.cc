#include "named/named_plan.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace corro::named {
namespace {

// The services of a bucket.
enum Role : uint32_t { kFill = 0, kStart = 1, kRoles = 2 };

graph::ServiceId service_of(size_t bucket, Role role) {
  return static_cast<graph::ServiceId>(bucket * kRoles + role);
}

graph::Plan plan_of(size_t buckets) {
  graph::Plan plan;
  const auto fills = plan.add_lane({.name = "fills", .depth = graph::kMostDepth});
  const auto starts = plan.add_lane({.name = "starts", .order = graph::LaneOrder::kAgreed});
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const auto full = plan.add_channel({.name = fmt::format("bucket {}", bucket)});
    plan.add_service({.name = fmt::format("fill {}", bucket), .lane = fills, .outputs = {full}});
    plan.add_service({.name = fmt::format("start {}", bucket), .lane = starts, .inputs = {full}});
  }
  return plan;
}

}  // namespace

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
  filling_.resize(buckets_.size());
  present_.resize(buckets_.size());
  // Both lanes are this object: start() knows a service by its number.
  executor_ = graph::Executor::create(plan_of(buckets_.size()), {this, this}).value();
}

void FollowedPlan::engage(uint64_t first_op) {
  first_op_ = first_op;
  executor_->run_until(std::numeric_limits<uint32_t>::max());
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

uint64_t FollowedPlan::next_op() const {
  const auto service = service_of(next_bucket_, kStart);
  return op_at(executor_->next_generation(service).micro, next_bucket_);
}

void FollowedPlan::add(uint32_t index) {
  const uint32_t bucket = bucket_of_[index];
  ++present_[bucket];
  fill(bucket);
}

/// Ends the bucket's fill if there is nothing to wait for.
void FollowedPlan::fill(size_t bucket) {
  const bool full = present_[bucket] == buckets_[bucket].parts.size();
  if (!full || !filling_[bucket]) return;
  executor_->complete(*std::exchange(filling_[bucket], std::nullopt));
}

void FollowedPlan::start(Time /*now*/, const graph::Work& work) {
  const graph::Ticket ticket = work.firing.ticket;
  const size_t bucket = ticket.task / kRoles;
  if (ticket.task == service_of(bucket, kFill)) {
    filling_[bucket] = ticket;
    fill(bucket);
    return;
  }
  present_[bucket] = 0;
  starts_.push_back(op_at(work.firing.generation.micro, bucket));
  next_bucket_ = (bucket + 1) % buckets_.size();
  executor_->complete(ticket);
}

std::optional<uint64_t> FollowedPlan::take_start() {
  if (starts_.empty() && !frozen_) executor_->poll({});
  if (starts_.empty()) return std::nullopt;
  const uint64_t op = starts_.front();
  starts_.pop_front();
  return op;
}

}  // namespace corro::named
