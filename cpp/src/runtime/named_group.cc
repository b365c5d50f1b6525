#include "runtime/named_group.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/operation/fold.h"

namespace corro::runtime {
namespace {

using collective::OpRequest;

/// A rank that was stopped for long asks before it gives up.
constexpr Duration kTimeToAnswer = std::chrono::milliseconds(50);
/// A submission that waits so long is shown to others, and whom it waits for is asked so often.
constexpr Duration kShownAfter = std::chrono::seconds(1);

// A message is the text of one control frame.
static_assert(named::kMaxNamedMessage <= wire::kMaxControlText);

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string codec_of(const OpRequest& request) {
  return request.codec == nullptr ? "" : std::string(request.codec->name());
}

uint64_t bytes_of(const OpRequest& request) { return request.count * size_of(request.dtype); }

/// What fusion may join has one count and one root: nothing else decides who reads and writes.
bool reads(const OpRequest& request, int32_t rank) {
  return request.kind != OpKind::kBroadcast || request.root == rank;
}
bool writes(const OpRequest& request, int32_t rank) {
  return request.kind != OpKind::kReduce || request.root == rank;
}

Status deadline_exceeded(Duration waited, const std::string& why, int32_t culprit) {
  const double seconds = std::chrono::duration<double>(waited).count();
  return {Code::kDeadlineExceeded,
          fmt::format("waited for {:.3g} s: {}", seconds, why),
          {.rank = culprit}};
}

/// The name has not started in time.
Status late(const named::NamedQueue& queue, const std::string& name, int32_t leader,
            Duration waited) {
  const std::string why = queue.describe(name);
  const std::vector<int32_t> missing = queue.missing(name);
  if (!why.empty()) return deadline_exceeded(waited, why, missing.empty() ? -1 : missing.front());
  return deadline_exceeded(
      waited, fmt::format("not submitted by rank {}, which leads the group", leader), leader);
}

std::string bucket_name(const std::string& first, size_t parts) {
  return parts == 1 ? first : fmt::format("{} and {} more", first, parts - 1);
}

/// Not all have joined in time.
Status late_join(const named::NamedQueue& queue, int32_t own, const std::vector<int32_t>& ranks,
                 Duration waited) {
  const std::vector<int32_t>& joined = queue.joined();
  std::vector<int32_t> missing;
  for (const int32_t rank : ranks) {
    const bool has = rank == own || std::ranges::find(joined, rank) != joined.end();
    if (!has) missing.push_back(rank);
  }
  return deadline_exceeded(waited, fmt::format("not joined by rank {}", fmt::join(missing, ", ")),
                           missing.empty() ? -1 : missing.front());
}

/// The bucket failed, the part's own buffers are as they were.
Status part_failure(const OpRequest& part, bool alone, const Status& status) {
  FailureDetail detail = status.detail().value_or(FailureDetail());
  detail.torn = false;
  if (alone) return {status.code(), std::string(status.message()), std::move(detail)};
  return {status.code(), fmt::format("\"{}\" in {}", part.name, status.message()),
          std::move(detail)};
}

}  // namespace

std::shared_ptr<WorkState> make_join_work(int32_t* last, Duration timeout) {
  const collective::Signature signature = named::join_operation().signature;
  auto* buffer = reinterpret_cast<std::byte*>(last);
  std::vector<OpRequest> requests;
  requests.push_back({.kind = signature.kind,
                      .dtype = signature.dtype,
                      .reduce_op = signature.reduce_op,
                      .input = buffer,
                      .output = buffer,
                      .count = signature.count,
                      .timeout = timeout,
                      .name = "join"});
  auto work = std::make_shared<WorkState>(std::move(requests));
  work->named = work->joins = true;
  return work;
}

NamedGroup::NamedGroup(NamedGroupOptions options)
    : options_(std::move(options)),
      queue_({.rank = own_world_rank()}),
      staging_(*options_.segment),
      shown_(*options_.recorder) {
  if (options_.rank == 0)
    negotiator_.emplace(options_.world_ranks,
                        named::NegotiatorOptions{.fusion = options_.fusion,
                                                 .waits_for_all = !options_.by_messages});
}

// -- what comes in --------------------------------------------------------------------------------

Status NamedGroup::submit(const std::shared_ptr<WorkState>& work, size_t index, Time now,
                          Time deadline) {
  const OpRequest& request = work->requests[index];
  const auto size = static_cast<int32_t>(options_.world_ranks.size());
  named::NamedEntry entry{.name = request.name,
                          .op = {.signature = collective::signature_of(request, size),
                                 .prescale = request.prescale,
                                 .postscale = request.postscale,
                                 .codec = codec_of(request)}};
  const Time ask_at = now + (deadline - now) / 4 * 3;
  const uint64_t token = next_token_++;
  CORRO_TRY(queue_.submit(std::move(entry), token, now));
  const uint64_t span = begin_wait(request);
  submissions_.emplace(token, Submission{.work = work,
                                         .index = index,
                                         .submitted = now,
                                         .ask_at = ask_at,
                                         .deadline = deadline,
                                         .span = span});
  next_due_ = std::min({next_due_, ask_at, now + kShownAfter});
  if (work->hurry) queue_.hurry(request.name);
  return {};
}

/// Its span in the timeline.
uint64_t NamedGroup::begin_wait(const OpRequest& request) const {
  return options_.timeline->negotiate(
      {.kind = request.kind, .dtype = request.dtype, .count = request.count, .name = request.name});
}

Status NamedGroup::join(const std::shared_ptr<WorkState>& work, Time now, Time deadline) {
  if (const auto last = queue_.take_missed_join()) {
    std::memcpy(work->requests[0].output, &*last, sizeof *last);
    work->finish_one({});
    return {};
  }
  const uint64_t token = next_token_++;
  CORRO_TRY(queue_.join(token));
  // The leader has nothing to say to who nears its deadline: everyone knows who has joined.
  submissions_.emplace(token, Submission{.work = work,
                                         .index = 0,
                                         .submitted = now,
                                         .ask_at = deadline,
                                         .deadline = deadline,
                                         .asked = true});
  next_due_ = std::min(next_due_, deadline);
  return {};
}

Status NamedGroup::hear(int32_t from, wire::ControlKind kind, std::string_view text) {
  heard_ = true;
  const auto bytes = std::as_bytes(std::span(text));
  if (kind == wire::ControlKind::kReady && leads()) return negotiator_->receive(from, bytes);
  if (kind == wire::ControlKind::kOrder && from == 0 && !leads()) return queue_.receive(bytes);
  return {Code::kInternal, "named operations: a message for another member of the group"};
}

// -- what goes out --------------------------------------------------------------------------------

Status NamedGroup::advance(bool room) {
  heard_ = false;
  while (true) {
    while (const auto announcement = queue_.take_announcement()) {
      if (leads()) {
        CORRO_TRY(negotiator_->receive(0, *announcement));
      } else {
        messages_.push_back({wire::ControlKind::kReady, text_of(*announcement)});
      }
    }
    if (const auto token = shown_.token()) {
      const auto missing = queue_.missing(submissions_.at(*token).request().name);
      shown_.set_awaited(missing.empty() ? -1 : missing.front());
    }
    if (!leads()) return {};
    auto decision = negotiator_->take_decision(false);
    if (!decision && std::exchange(room, false)) decision = negotiator_->take_decision(true);
    if (!decision) return {};
    messages_.push_back({wire::ControlKind::kOrder, text_of(*decision)});
    CORRO_TRY(queue_.receive(*decision));
  }
}

std::optional<NamedMessage> NamedGroup::take_message() {
  if (messages_.empty()) return std::nullopt;
  NamedMessage message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

std::optional<NamedStep> NamedGroup::take_step() {
  take_failures();
  if (!given_up_.empty()) {
    NamedStep step = std::move(given_up_.front());
    given_up_.pop_front();
    return step;
  }
  const auto start = queue_.take_start();
  if (!start) return std::nullopt;
  return start->resume ? take_back(*start) : begin(*start);
}

void NamedGroup::retire_planned(uint64_t below) {
  queue_.retire_planned(below);
  while (!planned_in_place_.empty() && planned_in_place_.front().first < below)
    planned_in_place_.pop_front();
}

/// What has begun waits for its name again. Its own rank alone has touched the buffer of a bucket
/// that a member has not begun. A part that had failed here has lost its owner.
NamedStep NamedGroup::take_back(const named::NamedStart& start) {
  const auto wait_again = [this](Part& part) {
    next_due_ = std::min(next_due_,
                         part.submission.asked ? part.submission.deadline : part.submission.ask_at);
    part.submission.span = begin_wait(part.submission.request());
    submissions_.emplace(part.token, std::move(part.submission));
  };
  std::erase_if(buckets_, [&](RunningBucket& bucket) {
    if (bucket.lane != start.lane || bucket.op < start.op || bucket.work->done()) return false;
    for (Part& part : bucket.parts) {
      options_.timeline->end(part.submission.span, Code::kCancelled);
      wait_again(part);
    }
    staging_.give_back(bucket.buffer);
    return true;
  });
  for (; !planned_in_place_.empty() && planned_in_place_.back().first >= start.op;
       planned_in_place_.pop_back()) {
    wait_again(planned_in_place_.back().second);
  }
  for (const auto& part : start.parts) {
    if (!submissions_.contains(part.token)) queue_.withdraw(part.token);
  }
  return {.lane = start.lane, .op = start.op, .resume = start.resume};
}

void NamedGroup::take_failures() {
  while (auto failure = queue_.take_failure()) {
    for (const uint64_t token : failure->tokens)
      end(take(token, failure->status.code()), failure->status);
    if (failure->cancelled)
      given_up_.push_back({.op = *failure->cancelled, .cause = failure->status});
  }
}

NamedGroup::Submission NamedGroup::take(uint64_t token, Code code) {
  if (shown_.token() == token) shown_.end(code);
  const auto found = submissions_.find(token);
  CORRO_CHECK(found != submissions_.end(), token);
  Submission submission = std::move(found->second);
  submissions_.erase(found);
  return submission;
}

// -- running --------------------------------------------------------------------------------------

NamedStep NamedGroup::begin(const named::NamedStart& start) {
  NamedStep step{.lane = start.lane, .op = start.op};
  std::vector<Part> parts;
  for (const named::NamedStart::Part& part : start.parts) {
    parts.push_back({part.token, take(part.token), part.offset_bytes});
    options_.timeline->agreed(parts.back().submission.span);
  }
  const bool planned = start.lane == named::NamedLane::kPlanned;
  // A plan may be left, and over messages a tensor in place would hold half a result by then.
  const bool copies = planned && options_.by_messages;
  if (parts.size() == 1 && !start.gives_identity && !copies) {
    step.work = parts[0].submission.work;
    step.index = parts[0].submission.index;
    OpRequest& request = step.work->requests[step.index];
    request.absent = start.absent;
    request.span = parts[0].submission.span;
    if (start.last_joined >= 0)
      std::memcpy(request.output, &start.last_joined, sizeof start.last_joined);
    if (planned) planned_in_place_.emplace_back(start.op, std::move(parts[0]));
    return step;
  }
  auto filled = fill_bucket(start, std::move(parts));
  if (filled.ok()) {
    step.work = *filled;
  } else {
    step.cause = filled.status();
  }
  return step;
}

collective::OpRequest NamedGroup::bucket_request(const named::NamedStart& start,
                                                 const std::vector<Part>& parts, std::byte* data) {
  Duration timeout = Duration::max();
  for (const Part& part : parts)
    timeout = std::min(timeout, part.submission.deadline - part.submission.submitted);
  const collective::Signature& signature = start.as_one.signature;
  return {.kind = signature.kind,
          .dtype = signature.dtype,
          .reduce_op = signature.reduce_op,
          .root = signature.root,
          .input = data,
          .output = data,
          .count = signature.count,
          .prescale = start.as_one.prescale,
          .postscale = start.as_one.postscale,
          .absent = start.absent,
          .codec = parts.empty() ? collective::codec_named(start.as_one.codec)
                                 : parts[0].submission.request().codec,
          .gives_identity = start.gives_identity,
          .element = signature.element,
          .shape = signature.shape,
          .timeout = timeout,
          .name = start.gives_identity
                      ? start.name
                      : bucket_name(parts[0].submission.request().name, parts.size()),
          .span = obs::kNoSpan};
}

/// Between its parts a bucket has zeros; without some of them, identities.
void NamedGroup::fill_parts(const named::NamedStart& start, const std::vector<Part>& parts,
                            collective::SegmentPool::Buffer buffer) const {
  const collective::Signature& whole = start.as_one.signature;
  const uint64_t total = whole.count * size_of(whole.dtype);
  if (start.gives_identity)
    collective::fill_identity(whole.dtype, whole.reduce_op, buffer.data, whole.count);
  uint64_t filled = 0;
  const auto pad = [&](uint64_t end) {
    if (!start.gives_identity) std::memset(buffer.data + filled, 0, end - filled);
  };
  for (const Part& part : parts) {
    const OpRequest& request = part.submission.request();
    pad(part.offset_bytes);
    if (start.gives_identity) {  // The bucket is not scaled any more.
      copy_contribution(request, buffer.data + part.offset_bytes, request.input, request.count);
    } else if (bytes_of(request) > 0 && reads(request, options_.rank)) {
      std::memcpy(buffer.data + part.offset_bytes, request.input, bytes_of(request));
    }
    filled = part.offset_bytes + bytes_of(request);
  }
  pad(total);
}

Result<std::shared_ptr<WorkState>> NamedGroup::fill_bucket(const named::NamedStart& start,
                                                           std::vector<Part> parts) {
  const uint64_t total = start.as_one.signature.count * size_of(start.as_one.signature.dtype);
  auto buffer = staging_.take(total);
  if (!buffer.ok()) {
    for (const Part& part : parts) end(part.submission, buffer.status());
    return buffer.status();
  }
  fill_parts(start, parts, *buffer);
  std::vector<OpRequest> as_one;
  as_one.push_back(bucket_request(start, parts, buffer->data));
  auto work = std::make_shared<WorkState>(std::move(as_one));
  buckets_.push_back({start.lane, start.op, work, std::move(parts), *buffer});
  return work;
}

bool NamedGroup::finish_buckets() {
  bool any = false;
  for (size_t i = 0; i < buckets_.size();) {
    if (!buckets_[i].work->done()) {
      ++i;
      continue;
    }
    any = true;
    const RunningBucket bucket = std::move(buckets_[i]);
    buckets_.erase(buckets_.begin() + static_cast<std::ptrdiff_t>(i));
    const Status& status = bucket.work->status();
    for (const auto& [token, submission, offset] : bucket.parts) {
      const OpRequest& request = submission.request();
      if (status.ok() && bytes_of(request) > 0 && writes(request, options_.rank)) {
        std::memcpy(request.output, bucket.buffer.data + offset, bytes_of(request));
      }
      options_.timeline->end(submission.span, status.code());
      submission.work->finish_one(
          status.ok() ? status : part_failure(request, bucket.parts.size() == 1, status));
    }
    // After a failure a peer may still be inside.
    if (status.ok()) staging_.give_back(bucket.buffer);
  }
  return any;
}

// -- deadlines and failures -----------------------------------------------------------------------

Time NamedGroup::next_check() const {
  return submissions_.empty() ? Time::never() : std::min(next_due_, queue_.next_check());
}

bool NamedGroup::check(Time now) {
  if (now < next_check()) return false;
  queue_.check_patience(now);
  next_due_ = Time::never();
  std::vector<uint64_t> expired;
  for (auto& [token, submission] : submissions_) {
    if (!submission.asked && now >= submission.ask_at) {
      queue_.ask(submission.request().name);
      submission.asked = true;
      submission.deadline = std::max(submission.deadline, now + kTimeToAnswer);
    } else if (now >= submission.deadline) {
      expired.push_back(token);
      continue;
    }
    next_due_ = std::min(next_due_, submission.asked ? submission.deadline : submission.ask_at);
  }
  std::sort(expired.begin(), expired.end());
  for (const uint64_t token : expired) expire(token, now);
  watch_oldest(now);
  return true;
}

/// What waits for its name has no flight yet: so that others see whom it waits for, the submission
/// that waits longest is shown as if it had one. One asks for all.
void NamedGroup::watch_oldest(Time now) {
  const std::pair<const uint64_t, Submission>* oldest = nullptr;
  for (const auto& one : submissions_) {
    if (!one.second.work->joins && (oldest == nullptr || one.first < oldest->first)) oldest = &one;
  }
  if (oldest == nullptr) return;
  const auto& [token, submission] = *oldest;
  const Time shown_at = submission.submitted + kShownAfter;
  if (now < shown_at) {
    next_due_ = std::min(next_due_, shown_at);
    return;
  }
  const OpRequest& request = submission.request();
  if (shown_.token() != token) {
    shown_.begin(token, request, submission.submitted);
    ask_again_at_ = now;
  }
  if (now >= ask_again_at_) {
    queue_.ask(request.name);
    ask_again_at_ = now + kShownAfter;
  }
  next_due_ = std::min(next_due_, ask_again_at_);
}

void NamedGroup::expire(uint64_t token, Time now) {
  const Submission submission = take(token, Code::kDeadlineExceeded);
  const Duration waited = now - submission.submitted;
  const std::vector<int32_t>& ranks = options_.world_ranks;
  if (submission.work->joins) {
    queue_.forget_join();
    return end(submission, late_join(queue_, own_world_rank(), ranks, waited));
  }
  const std::string& name = submission.request().name;
  const Status cause = late(queue_, name, ranks.front(), waited);
  queue_.withdraw(name, token);
  end(submission, cause);
}

void NamedGroup::end(const Submission& submission, const Status& cause) {
  options_.timeline->end(submission.span, cause.code());
  if (cause.detail() && cause.detail()->phase == "join") return submission.work->finish_one(cause);
  const std::string kind(submission.work->joins ? "join" : name_of(submission.request().kind));
  const std::string what =
      submission.work->joins ? kind : fmt::format("{} \"{}\"", kind, submission.request().name);
  submission.work->finish_one(
      {cause.code(),
       fmt::format("{} on rank {} (phase negotiate): {}", what, own_world_rank(), cause.message()),
       {.rank = cause.detail() ? cause.detail()->rank : -1, .op = kind, .phase = "negotiate"}});
}

void NamedGroup::fail(const Status& cause) {
  (void)finish_buckets();
  shown_.end(cause.code());
  auto submissions = std::exchange(submissions_, {});
  for (const auto& [token, submission] : submissions) end(submission, cause);
  queue_ = named::NamedQueue({.rank = own_world_rank()});
  messages_.clear();
  given_up_.clear();
  planned_in_place_.clear();
  next_due_ = Time::never();
}

}  // namespace corro::runtime
