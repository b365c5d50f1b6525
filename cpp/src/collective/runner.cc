#include "collective/runner.h"

#include <algorithm>

#include <fmt/format.h>

#include "collective/operation/fold.h"

namespace corro::collective {
namespace {

using transport::MessageKey;
using transport::RecvRequest;
using transport::SendRequest;

/// `own` and `other` are world ranks.
Status mismatch_error(const OpRequest& request, int32_t own, int32_t other,
                      const SignatureBits& own_signature, const RecvRequest& received) {
  Signature called = Signature::unpack(own_signature);
  called.kind = request.kind;  // A recv carries its sender's.
  std::string difference =
      fmt::format("{}: ranks disagree: {}", name_of(request.kind),
                  describe_difference(own, called.pack(), other, received.peer_signature));
  if (received.peer_signature == own_signature) {
    difference += fmt::format(" (rank {} sent {} bytes where rank {} expects {})", other,
                              received.peer_bytes, own, received.into.size());
  }
  return {Code::kInvalidArgument,
          difference,
          {.rank = other, .op = std::string(name_of(request.kind)), .phase = "exchange"}};
}

class ScheduleOperation final : public Operation {
 public:
  ScheduleOperation(Links& links, uint64_t op, const OpRequest& request,
                    std::shared_ptr<const Schedule> schedule, HostStages* stages)
      : links_(links),
        stages_(stages),
        op_(op),
        request_(request),
        schedule_(std::move(schedule)),
        element_(size_of(request.dtype)),
        signature_(signature_of(request, links.size()).pack()),
        sends_(schedule_->steps.size()),
        recvs_(schedule_->steps.size()) {}

  ~ScheduleOperation() override {
    links_.buffers.give(std::move(scratch_));
    links_.buffers.give(std::move(scaled_));
  }

  Progress poll(bool /*oldest*/) override {
    if (!started_) start();
    bool moved = false;
    for (size_t i = 0; i < active_.size();) {
      const Progress progress = advance(active_[i]);
      if (!failure_.ok()) return finish(std::move(failure_));
      moved = moved || progress != Progress::kIdle;
      if (progress != Progress::kDone) {
        ++i;
      } else {
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
        open_strands();
      }
    }
    if (active_.empty()) return finish({});
    return moved ? Progress::kMoved : Progress::kIdle;
  }

  void abandon() override {
    for (transport::Endpoint* endpoint : links_.endpoints) {
      if (endpoint != nullptr) endpoint->cancel(links_.lane, op_);
    }
  }

 private:
  /// A strand in flight: its steps [begin, end), of which [begin, round_end) belong to the current
  /// round.
  struct Strand {
    size_t begin, round_end, end;
  };

  void start() {
    started_ = true;
    torn_ = true;
    const Shape shape(request_, links_.rank, links_.size());
    input_ = request_.input;
    scratch_ = links_.buffers.take(schedule_->scratch_count * element_);
    if (input_scale(request_) != 1 && shape.contribution() > 0) {
      scaled_ = links_.buffers.take(shape.contribution() * element_);
      copy_contribution(request_, scaled_.data(), request_.input, shape.contribution());
      input_ = scaled_.data();
    }
    open_strands();
  }

  /// Opens every strand less than a window behind the oldest unfinished one: a strand further on
  /// shares its scratch.
  void open_strands() {
    const auto& steps = schedule_->steps;
    while (next_ < steps.size()) {
      const size_t oldest = active_.empty() ? next_ : active_.front().begin;
      if (steps[next_].strand >= steps[oldest].strand + schedule_->strand_window) return;
      active_.push_back(open_strand());
    }
  }

  Strand open_strand() {
    const auto& steps = schedule_->steps;
    const size_t begin = next_;
    while (next_ < steps.size() && steps[next_].strand == steps[begin].strand) ++next_;
    const size_t round_end = end_of_round(begin, next_);
    launch(begin, round_end);
    return {begin, round_end, next_};
  }

  [[nodiscard]] size_t end_of_round(size_t begin, size_t end) const {
    const auto& steps = schedule_->steps;
    size_t i = begin;
    while (i < end && steps[i].round == steps[begin].round) ++i;
    return i;
  }

  /// Runs rounds of the strand until one has to wait.
  Progress advance(Strand& strand) {
    Progress progress = Progress::kIdle;
    while (round_complete(strand)) {
      progress = Progress::kMoved;
      strand.begin = strand.round_end;
      if (strand.begin == strand.end) return Progress::kDone;
      strand.round_end = end_of_round(strand.begin, strand.end);
      launch(strand.begin, strand.round_end);
    }
    return progress;
  }

  bool round_complete(const Strand& strand) {
    for (size_t i = strand.begin; i < strand.round_end; ++i) {
      const Step& step = schedule_->steps[i];
      if (step.kind == StepKind::kMark && !stages_->mark(step.mark, step.tag)) return false;
      if (step.kind == StepKind::kAwait && !stages_->has_marked(step.peer, step.mark, step.tag)) {
        wait(obs::Phase::kTransfer, step.peer);
        return false;
      }
      if (step.kind == StepKind::kSend && !sends_[i].done) {
        wait(obs::Phase::kTransfer, step.peer);
        return false;
      }
      if (step.kind != StepKind::kRecv) continue;
      if (!recvs_[i].done) {
        wait(obs::Phase::kTransfer, step.peer);
        return false;
      }
      if (recvs_[i].mismatch) {
        failure_ = mismatch_error(request_, world_rank(links_.rank), world_rank(step.peer),
                                  signature_, recvs_[i]);
        return false;
      }
    }
    return true;
  }

  void launch(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Step& step = schedule_->steps[i];
      if (step.kind == StepKind::kRecv) post_recv(i, step);
    }
    for (size_t i = begin; i < end; ++i) {
      const Step& step = schedule_->steps[i];
      if (step.kind == StepKind::kSend) post_send(i, step);
      if (step.kind == StepKind::kReduce) fold(step);
      if (step.kind == StepKind::kCopy)
        copy(writable(step.into), readable(step.from), step.into.count);
    }
  }

  /// In place, source and target may be the same.
  void copy(std::byte* into, const std::byte* from, uint64_t count) const {
    if (count > 0 && into != from) std::memmove(into, from, count * element_);
  }

  void post_recv(size_t i, const Step& step) {
    recvs_[i].key = {.lane = links_.lane, .op = op_, .step = step.tag};
    recvs_[i].signature = signature_;
    recvs_[i].into = {writable(step.into), step.into.count * element_};
    links_.endpoints[static_cast<size_t>(step.peer)]->post_recv(recvs_[i]);
  }

  void post_send(size_t i, const Step& step) {
    sends_[i].key = {.lane = links_.lane, .op = op_, .step = step.tag};
    sends_[i].signature = signature_;
    sends_[i].payload = {readable(step.from), step.from.count * element_};
    links_.endpoints[static_cast<size_t>(step.peer)]->post_send(sends_[i]);
  }

  void fold(const Step& step) {
    fold_sources_.clear();
    for (uint32_t i = 0; i < step.sources_count; ++i) {
      fold_sources_.push_back(readable(schedule_->sources[step.sources_begin + i]));
    }
    if (step.final_fold) {
      fold_final(request_, links_.size(), writable(step.into), fold_sources_, step.into.count);
    } else {
      fold_partial(request_, writable(step.into), fold_sources_, step.into.count);
    }
  }

  [[nodiscard]] int32_t world_rank(int32_t r) const {
    return links_.world_ranks[static_cast<size_t>(r)];
  }
  [[nodiscard]] const std::byte* readable(const Block& block) const {
    if (block.count == 0) return nullptr;
    return base_of(block) + block.offset * element_;
  }
  [[nodiscard]] std::byte* writable(const Block& block) {
    if (block.count == 0) return nullptr;
    CORRO_CHECK(block.buffer != Buffer::kInput, "a schedule writes to its input");
    return const_cast<std::byte*>(base_of(block)) + block.offset * element_;
  }
  [[nodiscard]] const std::byte* base_of(const Block& block) const {
    switch (block.buffer) {
      case Buffer::kInput:
        return input_;
      case Buffer::kOutput:
        return request_.output;
      case Buffer::kScratch:
        return scratch_.data();
      case Buffer::kStage:
        return stages_->stage_of(block.owner);
    }
    return nullptr;
  }
  Links& links_;
  HostStages* const stages_;
  const uint64_t op_;
  const OpRequest& request_;
  const std::shared_ptr<const Schedule> schedule_;
  const uint64_t element_;
  const SignatureBits signature_;
  std::vector<SendRequest> sends_;
  std::vector<RecvRequest> recvs_;
  BufferPool::Buffer scratch_, scaled_;
  std::vector<const std::byte*> fold_sources_;
  const std::byte* input_ = nullptr;
  std::vector<Strand> active_;
  size_t next_ = 0;
  bool started_ = false;
  Status failure_;
};

class PairOperation final : public Operation {
 public:
  PairOperation(const PairLink& link, uint64_t sequence, const OpRequest& request)
      : link_(link), request_(request), endpoint_(*link.endpoint) {
    const MessageKey key{.lane = link.lane, .op = sequence, .step = 0};
    // Both sides carry the sender's view, so they compare equal.
    const SignatureBits signature = Signature{.kind = OpKind::kSend,
                                              .dtype = request.dtype,
                                              .count = request.count,
                                              .element = request.element}
                                        .pack();
    const uint64_t bytes = request.count * size_of(request.dtype);
    send_ = {.key = key, .signature = signature, .payload = {request.input, bytes}};
    recv_ = {.key = key, .signature = signature, .into = {request.output, bytes}};
  }

  Progress poll(bool /*oldest*/) override {
    if (!started_) {
      started_ = true;
      torn_ = request_.kind == OpKind::kRecv;
      wait(obs::Phase::kTransfer, request_.root);
      if (request_.kind == OpKind::kSend) {
        endpoint_.post_send(send_);
      } else {
        endpoint_.post_recv(recv_);
      }
    }
    if (recv_.mismatch) {
      return finish(mismatch_error(request_, link_.own_world_rank, link_.peer_world_rank,
                                   recv_.signature, recv_));
    }
    return send_.done || recv_.done ? finish({}) : Progress::kIdle;
  }

  void abandon() override { endpoint_.cancel(send_.key.lane, send_.key.op); }

 private:
  const PairLink link_;
  const OpRequest& request_;
  transport::Endpoint& endpoint_;
  SendRequest send_;
  RecvRequest recv_;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<Operation> make_schedule_operation(Links& links, uint64_t op,
                                                   const OpRequest& request,
                                                   std::shared_ptr<const Schedule> schedule,
                                                   HostStages* stages) {
  return std::make_unique<ScheduleOperation>(links, op, request, std::move(schedule), stages);
}

std::unique_ptr<Operation> make_pair_operation(const PairLink& link, uint64_t sequence,
                                               const OpRequest& request) {
  return std::make_unique<PairOperation>(link, sequence, request);
}

void retire_below(const Links& links, uint64_t op) {
  for (transport::Endpoint* endpoint : links.endpoints) {
    if (endpoint != nullptr) endpoint->retire_below(links.lane, op);
  }
}

std::string describe_last_message(const Links& links, int32_t r) {
  const transport::Endpoint* endpoint = links.endpoints[static_cast<size_t>(r)];
  if (endpoint == nullptr || !endpoint->last_message()) {
    return fmt::format("it has sent rank {} nothing yet",
                       links.world_ranks[static_cast<size_t>(links.rank)]);
  }
  const transport::MessageHead& last = *endpoint->last_message();
  const std::string call = Signature::unpack(last.signature).describe();
  if (last.key.lane == links.lane) {
    return fmt::format("its last message on this group was of #{} {}", last.key.op + 1, call);
  }
  return "its last message was of " + call + ", elsewhere";
}

}  // namespace corro::collective
