#include "runtime/buckets.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "io/futex.h"

namespace corro::runtime {
namespace {

// The services of a bucket in a rank's part of the plan.
enum Role : uint32_t { kFill = 0, kReduce = 1, kLand = 2, kRoles = 3 };

constexpr graph::LaneId kReductions = 0;  ///< The lane that all ranks share.

std::vector<uint32_t> buckets_of(const std::vector<BucketPart>& parts) {
  std::vector<uint32_t> buckets;
  for (const BucketPart& part : parts) buckets.push_back(part.bucket);
  return buckets;
}

bool plain_average(const std::vector<BucketPart>& parts, const BucketOptions& options) {
  const auto coded = [&options](const BucketPart& part) {
    return options.codec != nullptr && options.codec->applies_to(part.dtype);
  };
  return options.reduce_op == ReduceOp::kAverage && options.prescale == 1 &&
         options.postscale == 1 && std::none_of(parts.begin(), parts.end(), coded);
}

/// "bucket 3 ("weight" and 7 more)".
std::string title_of(uint32_t bucket, const std::vector<BucketPart>& parts) {
  const std::string more = parts.size() > 1 ? fmt::format(" and {} more", parts.size() - 1) : "";
  return fmt::format("bucket {} (\"{}\"{})", bucket, parts.front().name, more);
}

Status wrong(const BucketPart& part, const std::string& what) {
  return {Code::kInvalidArgument, fmt::format("bucket part \"{}\": {}", part.name, what)};
}

}  // namespace

Status check_parts(const std::vector<BucketPart>& parts) {
  if (parts.empty()) return {Code::kInvalidArgument, "a set of buckets needs at least one part"};
  std::vector<const BucketPart*> first(parts.size());
  for (const BucketPart& part : parts) {
    if (part.bucket >= parts.size())
      return wrong(part, fmt::format("bucket {} of {} parts", part.bucket, parts.size()));
    if (part.data == nullptr && part.count > 0) return wrong(part, "data is NULL");
    if (part.count > collective::kMostElements)
      return wrong(
          part, fmt::format("count is {}; the most is {}", part.count, collective::kMostElements));
    const BucketPart*& before = first[part.bucket];
    if (before == nullptr) before = &part;
    if (before->dtype != part.dtype) {
      return wrong(part, fmt::format("its dtype is {}, that of \"{}\" in the same bucket {}",
                                     name_of(part.dtype), before->name, name_of(before->dtype)));
    }
  }
  const uint32_t last = std::ranges::max(buckets_of(parts));
  for (uint32_t bucket = 0; bucket < last; ++bucket) {
    if (first[bucket] == nullptr)
      return {Code::kInvalidArgument, fmt::format("bucket {} has no part; {} has", bucket, last)};
  }
  return {};
}

// -- making ---------------------------------------------------------------------------------------

Buckets::Buckets(Group& group, const std::vector<BucketPart>& parts, const BucketOptions& options)
    : group_(group),
      options_(options),
      set_(buckets_of(parts), {.passes = options.passes, .repeats = plain_average(parts, options)}),
      parts_of_(set_.buckets()),
      map_(set_.parts()),
      fills_(set_.buckets() + 1) {
  for (uint32_t part = 0; part < parts.size(); ++part)
    parts_of_[parts[part].bucket].push_back(part);
}

Result<std::unique_ptr<Buckets>> Buckets::create(Engine& engine, Group& group,
                                                 const std::vector<BucketPart>& parts,
                                                 const BucketOptions& options) {
  CORRO_TRY(check_parts(parts));
  if (options.reduce_op == ReduceOp::kAdasum) {
    return Status(Code::kInvalidArgument,
                  "buckets: adasum looks at each tensor as a whole; allreduce them one by one");
  }
  std::unique_ptr<Buckets> buckets(new Buckets(group, parts, options));
  CORRO_TRY(buckets->open(engine, parts));
  return buckets;
}

Status Buckets::open(Engine& engine, const std::vector<BucketPart>& parts) {
  for (const auto& numbers : parts_of_) {
    std::vector<BucketPart> own;
    for (const uint32_t part : numbers) own.push_back(parts[part]);
    CORRO_ASSIGN(auto memory, BucketMemory::create(std::move(own), *engine.segment()));
    memory_.push_back(std::move(memory));
  }
  CORRO_ASSIGN(plan_, engine.load(group_, make_plan(), load_options()));
  return {};
}

/// Names are numbers: parts may be called differently on another rank, and the plan is the same.
graph::Plan Buckets::make_plan() const {
  graph::Plan plan;
  plan.ranks = static_cast<uint32_t>(group_.facts().size());
  std::vector<uint32_t> ranks(plan.ranks);
  for (uint32_t r = 0; r < plan.ranks; ++r) ranks[r] = r;
  plan.add_lane({.name = "reductions",
                 .order = graph::LaneOrder::kAgreed,
                 .depth = graph::kMostDepth,
                 .ranks = ranks});
  for (const uint32_t r : ranks) {
    plan.add_lane({.name = fmt::format("rank {}", r), .depth = graph::kMostDepth, .ranks = {r}});
  }
  for (uint32_t bucket = 0; bucket <= set_.buckets(); ++bucket) {
    const bool is_map = bucket == set_.buckets();
    const std::string name = is_map ? "map" : fmt::format("bucket {}", bucket);
    graph::OperationSpec operation{.kind = OpKind::kAllreduce,
                                   .dtype = DType::kU8,
                                   .count = set_.parts() + 2 * sizeof(uint64_t),
                                   .reduce_op = ReduceOp::kMax};
    if (!is_map) {
      operation.dtype = memory_[bucket]->dtype();
      operation.count = memory_[bucket]->count();
      operation.reduce_op = options_.reduce_op;
    }
    const uint64_t bytes = operation.count * size_of(operation.dtype);
    const auto reduced = plan.add_channel({.name = "reduced " + name});
    std::vector<graph::ChannelId> filled;
    for (const uint32_t r : ranks) {
      filled.push_back(
          plan.add_channel({.name = fmt::format("{} of rank {}", name, r), .slot_bytes = bytes}));
      plan.add_service({.name = "fill " + name, .lane = r + 1, .outputs = {filled.back()}});
    }
    plan.add_service({.name = name,
                      .lane = kReductions,
                      .inputs = filled,
                      .outputs = {reduced},
                      .operation = operation});
    for (const uint32_t r : ranks)
      plan.add_service({.name = "land " + name, .lane = r + 1, .inputs = {reduced}});
  }
  return plan;
}

LoadOptions Buckets::load_options() {
  // As make_plan() numbers them.
  const auto ranks = static_cast<uint32_t>(group_.facts().size());
  const uint32_t services = 2 * ranks + 1;
  std::vector<ChannelMemory> memory;
  for (uint32_t bucket = 0; bucket <= set_.buckets(); ++bucket) {
    const auto bytes =
        bucket == set_.buckets() ? std::as_writable_bytes(map_.bytes()) : memory_[bucket]->bytes();
    const uint32_t filled = bucket * (ranks + 1) + 1 + static_cast<uint32_t>(group_.facts().rank);
    memory.push_back({.channel = filled, .slots = {bytes}});
  }
  return {.timeout = options_.timeout,
          .own_lane = [this](graph::LaneId) { return this; },
          .memory = std::move(memory),
          .adjust =
              [this, services](graph::ServiceId service, collective::OpRequest& request) {
                const uint32_t bucket = service / services;
                if (bucket == set_.buckets()) return;
                request.name = title_of(bucket, memory_[bucket]->parts());
                request.prescale = options_.prescale;
                request.postscale = options_.postscale;
                const bool coded = options_.codec && options_.codec->applies_to(request.dtype);
                if (coded) request.codec = options_.codec;
              },
          .shows_firings = false};
}

void Buckets::destroy(Engine& engine) { engine.unload(group_, *plan_); }

// -- any thread -----------------------------------------------------------------------------------

BucketSet::Ready Buckets::ready(uint32_t part) {
  const BucketSet::Ready result = set_.ready(part);
  if (result == BucketSet::Ready::kComplete) news_.store(true, std::memory_order_seq_cst);
  return result;
}

Status Buckets::refusal(uint32_t part) const {
  const BucketPart* refused = nullptr;
  for (uint32_t bucket = 0; bucket < set_.buckets(); ++bucket) {
    const auto& numbers = parts_of_[bucket];
    const auto found = std::find(numbers.begin(), numbers.end(), part);
    if (found != numbers.end())
      refused = &memory_[bucket]->parts()[static_cast<size_t>(found - numbers.begin())];
  }
  CORRO_CHECK(refused != nullptr, part);
  return {
      Code::kFailedPrecondition,
      fmt::format("bucket part \"{}\" came once more than {} {} before the next generation, and "
                  "only a plain average can be reduced again",
                  refused->name, options_.passes, options_.passes == 1 ? "pass" : "passes")};
}

Status Buckets::close(uint64_t generation, uint64_t word) {
  const uint64_t current = set_.generation();
  if (generation > current) {
    return {Code::kInvalidArgument,
            fmt::format("generation {} has not begun; this one is {}", generation, current)};
  }
  if (generation < current) return {};
  // The engine may read it at any time from here to next().
  if (!set_.closed()) word_.store(word, std::memory_order_relaxed);
  set_.close();
  news_.store(true, std::memory_order_seq_cst);
  return {};
}

Status Buckets::join() {
  if (failed_.load(std::memory_order_acquire)) return failure_;
  set_.join();
  news_.store(true, std::memory_order_seq_cst);
  return {};
}

bool Buckets::over(uint32_t bucket) const {
  if (set_.joined()) return false;
  return bucket == kAll ? set_.all_settled() : set_.settled(bucket);
}

Status Buckets::wait(uint32_t bucket, Duration timeout) const {
  const bool forever = timeout < Duration::zero();
  const Time deadline = forever ? Time::never() : monotonic_now() + timeout;
  while (true) {
    const uint32_t signal = signal_.load(std::memory_order_seq_cst);
    const bool failed = failed_.load(std::memory_order_acquire);
    if (over(bucket) && (!failed || set_.closed())) return {};
    if (failed) return failure_;
    const Duration left = forever ? Duration(-1) : deadline - monotonic_now();
    if (!forever && left <= Duration::zero()) {
      return {Code::kDeadlineExceeded,
              fmt::format("{} is still being reduced after {} ms",
                          bucket == kAll ? "a bucket" : fmt::format("bucket {}", bucket),
                          std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count())};
    }
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    io::futex_wait(signal_, signal, left);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
}

Status Buckets::next() {
  if (set_.next()) return {};
  if (failed_.load(std::memory_order_acquire)) return failure_;
  return {Code::kFailedPrecondition,
          fmt::format("generation {} is not over: close it and wait for all buckets first",
                      set_.generation())};
}

// -- the engine -----------------------------------------------------------------------------------

void Buckets::start(Time /*now*/, const graph::Work& work) {
  const graph::Ticket ticket = work.firing.ticket;
  const uint32_t bucket = ticket.task / kRoles;
  if (ticket.task % kRoles == kLand) {
    executor_->complete(ticket, land(bucket));
  } else {
    fills_[bucket] = {.ticket = ticket, .round = work.firing.generation.micro, .waits = true};
  }
  (void)fill_in_order();
}

bool Buckets::poll(Time /*now*/) {
  if (!news_.exchange(false, std::memory_order_seq_cst)) return false;
  bool moved = false;
  // Between rounds nothing is in flight, so a set that is destroyed then ends nobody else's.
  const auto may_begin = [this] {
    for (uint32_t bucket = 0; bucket <= set_.buckets(); ++bucket)
      if (set_.may_reduce(bucket, rounds_)) return true;
    return false;
  };
  while (may_begin()) {
    (void)plan_->run_until(++rounds_);
    moved = true;
  }
  return fill_in_order() || moved;
}

/// Ends the fills that the set allows and whose memory the round before has left; true if there
/// were any.
bool Buckets::fill_in_order() {
  bool filled = false;
  while (true) {
    const uint32_t bucket = next_fill_;
    const Fill firing = fills_[bucket];
    const bool allowed = firing.waits && set_.may_reduce(bucket, firing.round) &&
                         set_.rounds_done(bucket) == firing.round;
    if (!allowed) return filled;
    fills_[bucket].waits = false;
    next_fill_ = bucket == set_.buckets() ? 0 : bucket + 1;
    if (bucket == set_.buckets()) {
      fill_map(firing.round);
    } else {
      fill_bucket(bucket, firing.round);
    }
    executor_->complete(firing.ticket);
    filled = true;
  }
}

void Buckets::fill_bucket(uint32_t bucket, uint64_t round) {
  BucketMemory& memory = *memory_[bucket];
  for (size_t i = 0; i < memory.parts().size(); ++i) {
    const BucketPart& part = memory.parts()[i];
    if (set_.lacks(parts_of_[bucket][i], round) && part.count > 0)
      std::memset(part.data, 0, part.bytes());
  }
  memory.gather();
}

void Buckets::fill_map(uint64_t round) {
  if (set_.joined()) return map_.clear();
  for (uint32_t part = 0; part < set_.parts(); ++part) map_.set(part, set_.came_lately(part));
  map_.set_word(set_.word(round) ^ word_.load(std::memory_order_relaxed));
}

Status Buckets::land(uint32_t bucket) {
  const bool is_map = bucket == set_.buckets();
  const bool joined = set_.joined();
  if (!is_map) {
    memory_[bucket]->scatter();
  } else if (!(joined && map_.all_joined()) && !map_.agrees()) {
    return {Code::kInvalidArgument,
            "ranks disagree: they closed other generations, after other backward passes, or with "
            "other words",
            {.op = std::string(name_of(OpKind::kAllreduce)), .phase = "agreement"}};
  }
  set_.reduced(bucket);
  if (joined && is_map) {
    set_.pass_round(map_.all_joined());
    news_.store(true, std::memory_order_seq_cst);  // The next round, if there is one.
  }
  wake_waiters();
  return {};
}

void Buckets::stop(const Status& cause, Time /*now*/) {
  if (failed_.load(std::memory_order_relaxed)) return;
  FailureDetail detail = cause.detail().value_or(FailureDetail{});
  if (detail.op.empty()) detail.op = name_of(OpKind::kAllreduce);
  failure_ = {cause.code(), fmt::format("{}: {}", where(), cause.message()), std::move(detail)};
  failed_.store(true, std::memory_order_release);
  wake_waiters();
}

void Buckets::wake_waiters() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) > 0) io::futex_wake_all(signal_);
}

/// The generation, and what is reduced next.
std::string Buckets::where() const {
  uint32_t bucket = 0;
  while (bucket < set_.buckets() && set_.rounds_done(bucket) > set_.rounds_done(set_.buckets()))
    ++bucket;
  std::string text = fmt::format("gradients of generation {}", set_.generation());
  if (bucket == set_.buckets()) return text;
  return text + ", " + title_of(bucket, memory_[bucket]->parts());
}

}  // namespace corro::runtime
