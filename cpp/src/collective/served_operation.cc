#include "collective/served_operation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace corro::collective {
namespace {

using transport::RecvRequest;
using transport::SendRequest;

/// Aggregators that say nothing for so long, while all contributors have begun, are given up; or for
/// a quarter of the operation's own time, so that the rest of it is left to do without them.
constexpr Duration kPatience = std::chrono::seconds(4);
constexpr int kPatiencePart = 4;
/// No schedule has as many steps.
constexpr uint32_t kBegunStep = UINT32_MAX - 1, kVoteStep = UINT32_MAX;
constexpr std::byte kServed{0}, kGivenUp{1};

/// What this contributor and another one tell each other of an operation. Requests stay in place.
struct Word {
  std::array<SendRequest, 2> sends;  ///< That it has begun, and how it went.
  RecvRequest begun, vote;
  std::array<std::byte, 1> verdict{};
};

class ServedOperation final : public Operation {
 public:
  ServedOperation(ServedLane& lane, uint64_t op, const OpRequest& request,
                  std::shared_ptr<const Schedule> schedule, Algorithm folds_as,
                  std::function<std::unique_ptr<Operation>()> alone)
      : lane_(lane),
        op_(op),
        request_(request),
        served_(request),
        schedule_(std::move(schedule)),
        folds_as_(folds_as),
        in_place_(request.input == request.output),
        alone_by_(std::move(alone)),
        words_(static_cast<size_t>(lane.words.size())),
        calls_(static_cast<size_t>(lane.aggregators.count())) {
    served_.absent += lane.aggregators.count();
    bytes_ = request.count * size_of(request.dtype);
    const Duration timeout = request.timeout > Duration::zero() ? request.timeout : lane.timeout;
    patience_ = std::min(kPatience, timeout / kPatiencePart);
  }

  ~ServedOperation() override { lane_.data.buffers.give(std::move(result_)); }

  Progress poll(bool oldest) override {
    if (alone_ != nullptr) return go_on_alone(oldest);
    if (!begun_) {
      if (op_ >= lane_.completed + kMostAhead) return Progress::kIdle;
      if (op_ >= lane_.ends_at) return go_alone(oldest);
      begin();
    }
    bool moved = lane_.aggregators.progress();
    if (data_ != nullptr) moved = serve() || moved;
    compare();
    if (!failure_.ok()) return give_up(std::move(failure_));
    if (data_ == nullptr && all_voted()) return decide(oldest);
    return moved ? Progress::kMoved : Progress::kIdle;
  }

  /// Aggregators and others are in the middle of it: they hear by the end of the connections.
  void abandon() override {
    if (data_ != nullptr) data_->abandon();
    if (alone_ != nullptr) return alone_->abandon();
    if (!begun_) return;
    lane_.aggregators.end();
    cancel_calls();
    for_each_other([&](transport::Endpoint& other, Word&) { other.cancel(lane_.words.lane, op_); });
  }

 private:
  void begin() {
    begun_ = true;
    number_ = lane_.aggregators.take_number();
    if (in_place_) result_ = lane_.data.buffers.take(bytes_);
    if (in_place_) served_.output = result_.data();
    torn_ = !in_place_;
    call_ = encode(ServedCall{.lane = lane_.data.lane,
                              .op = op_,
                              .count = request_.count,
                              .shape = request_.shape,
                              .prescale = request_.prescale,
                              .postscale = request_.postscale,
                              .absent = request_.absent,
                              .dtype = request_.dtype,
                              .reduce_op = request_.reduce_op,
                              .folds_as = folds_as_});
    data_ = make_schedule_operation(lane_.data, op_, served_, std::move(schedule_));
    tell_that_it_begins();
    last_moved_ = monotonic_now();
  }

  void tell_that_it_begins() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls_[i] = {.key = {.lane = kServedLane, .op = number_, .step = 0},
                   .signature = {},
                   .payload = call_};
      lane_.aggregators.endpoint(static_cast<int32_t>(i)).post_send(calls_[i]);
    }
    signature_ = signature_of(served_, lane_.words.size()).pack();
    for_each_other([&](transport::Endpoint& other, Word& word) {
      word.begun = {.key = key_of(kBegunStep), .signature = signature_, .into = {}};
      word.vote = {.key = key_of(kVoteStep), .signature = signature_, .into = word.verdict};
      other.post_recv(word.begun);
      other.post_recv(word.vote);
      send(other, word.sends[0], kBegunStep, {});
    });
  }

  /// Runs the schedule until it is done or given up; then all are told.
  bool serve() {
    if (is_given_up()) {
      data_->abandon();
      lane_.aggregators.end();
      vote(kGivenUp);
      return true;
    }
    const Progress progress = data_->poll(true);
    if (progress == Progress::kIdle) {
      wait(obs::Phase::kTransfer, awaited());
      return false;
    }
    last_moved_ = monotonic_now();
    if (progress != Progress::kDone) return true;
    failure_ = data_->status();
    if (failure_.ok()) vote(kServed);
    return true;
  }

  [[nodiscard]] bool is_given_up() {
    bool all_begun = true;
    bool given_up = lane_.aggregators.lost();
    for_each_other([&](transport::Endpoint&, Word& word) {
      all_begun = all_begun && word.begun.done;
      given_up = given_up || (word.vote.done && word.verdict[0] != kServed);
    });
    if (!all_begun) last_moved_ = monotonic_now();  // Servers wait for that one, too.
    return given_up || (all_begun && monotonic_now() - last_moved_ >= patience_);
  }

  /// A word of another operation is none: then nobody decides on this one, since each rank differs
  /// from another one.
  void compare() {
    for_each_other([&](transport::Endpoint&, Word& word) {
      for (const RecvRequest* one : {&word.begun, &word.vote})
        if (one->mismatch) failure_ = disagreement(*one, static_cast<size_t>(&word - &words_[0]));
    });
  }

  [[nodiscard]] Status disagreement(const RecvRequest& word, size_t from) const {
    const int32_t own = lane_.words.world_ranks[static_cast<size_t>(lane_.words.rank)];
    const int32_t other = lane_.words.world_ranks[from];
    return {Code::kInvalidArgument,
            "allreduce: ranks disagree: " +
                describe_difference(own, word.signature, other, word.peer_signature),
            {.rank = other, .op = "allreduce", .phase = "exchange"}};
  }

  void vote(std::byte verdict) {
    data_.reset();
    verdict_[0] = verdict;
    for_each_other([&](transport::Endpoint& other, Word& word) {
      send(other, word.sends[1], kVoteStep, verdict_);
    });
  }

  [[nodiscard]] bool all_voted() {
    int32_t missing = -1;
    for_each_other([&](transport::Endpoint&, Word& word) {
      const bool said = word.vote.done && word.sends[0].done && word.sends[1].done;
      if (!said && missing < 0) missing = static_cast<int32_t>(&word - words_.data());
    });
    if (missing >= 0) wait(obs::Phase::kFinish, missing);
    return missing < 0;
  }

  Progress decide(bool oldest) {
    bool served = verdict_[0] == kServed;
    for_each_other(
        [&](transport::Endpoint&, Word& word) { served = served && word.verdict[0] == kServed; });
    lane_.aggregators.metrics().add(served ? obs::Metric::kServed : obs::Metric::kServedInVain);
    if (served) {
      if (in_place_ && bytes_ > 0) std::memcpy(request_.output, result_.data(), bytes_);
      return finish({});
    }
    lane_.aggregators.end();
    cancel_calls();
    lane_.ends_at = std::min(lane_.ends_at, op_ + kMostAhead);
    return go_alone(oldest);
  }

  Progress go_alone(bool oldest) {
    alone_ = alone_by_();
    return go_on_alone(oldest);
  }

  Progress go_on_alone(bool oldest) {
    const Progress progress = alone_->poll(oldest);
    torn_ = torn_ || alone_->torn();
    fatal_ = alone_->fatal();
    wait(alone_->phase(), alone_->waiting_for());
    return progress == Progress::kDone ? finish(alone_->status()) : progress;
  }

  Progress give_up(Status status) {
    abandon();
    return finish(std::move(status));
  }

  /// The contributor that the schedule waits for: itself, or by way of an aggregator.
  [[nodiscard]] int32_t awaited() {
    if (data_->waiting_for() < lane_.words.size()) return data_->waiting_for();
    int32_t late = -1;
    for_each_other([&](transport::Endpoint&, Word& word) {
      if (!word.begun.done && late < 0) late = static_cast<int32_t>(&word - words_.data());
    });
    return late;
  }

  void send(transport::Endpoint& to, SendRequest& request, uint32_t step, BytesView payload) {
    request = {.key = key_of(step), .signature = signature_, .payload = payload};
    to.post_send(request);
  }

  [[nodiscard]] transport::MessageKey key_of(uint32_t step) const {
    return {.lane = lane_.words.lane, .op = op_, .step = step};
  }

  void cancel_calls() {
    for (int32_t i = 0; i < lane_.aggregators.count(); ++i)
      lane_.aggregators.endpoint(i).cancel(kServedLane, number_);
  }

  template <typename Visit>
  void for_each_other(const Visit& visit) {
    for (size_t r = 0; r < words_.size(); ++r) {
      transport::Endpoint* const other = lane_.words.endpoints[r];
      if (other != nullptr) visit(*other, words_[r]);
    }
  }

  ServedLane& lane_;
  const uint64_t op_;
  const OpRequest& request_;
  OpRequest served_;  ///< The same with aggregators, and where the result goes.
  std::shared_ptr<const Schedule> schedule_;  ///< Until it begins.
  const Algorithm folds_as_;
  const bool in_place_;
  const std::function<std::unique_ptr<Operation>()> alone_by_;
  uint64_t bytes_ = 0;
  Duration patience_{};
  uint64_t number_ = 0;  ///< Of its call, on the connections to aggregators.
  BufferPool::Buffer result_;
  Bytes call_;
  SignatureBits signature_{};       ///< Of the words.
  std::vector<Word> words_;         ///< By group rank.
  std::vector<SendRequest> calls_;  ///< By aggregator.
  std::array<std::byte, 1> verdict_{};
  std::unique_ptr<Operation> data_;   ///< Null before, and once it is done or given up.
  std::unique_ptr<Operation> alone_;  ///< Null before.
  Status failure_;
  Time last_moved_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Operation> make_served_operation(
    ServedLane& lane, uint64_t op, const OpRequest& request,
    std::shared_ptr<const Schedule> schedule, Algorithm folds_as,
    std::function<std::unique_ptr<Operation>()> alone) {
  return std::make_unique<ServedOperation>(lane, op, request, std::move(schedule), folds_as,
                                           std::move(alone));
}

}  // namespace corro::collective
