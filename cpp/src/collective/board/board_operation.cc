// A collective on a board.
//
//   admit    waits until all members are there and the own line is free, and publishes it
//   gather   reads the lines of the others. Then: a mismatch fails it on all ranks alike; what is
//            small ends here; what is large waits until it is the oldest operation in flight,
//            because paths may use memory that the lane has once
//   large    the direct, the staged or the pairwise path, as all ranks choose alike from the lines
//
// In every state a member may have given the group up: that is looked for now and then while
// nothing moves, before each step of a path, and once more at its end. A member that has failed may
// use its buffers for something else, so what was read of them counts only if none had failed by
// then.
#include <optional>

#include <fmt/format.h>

#include "collective/board/board_exchange.h"

namespace corro::collective {
namespace {

constexpr uint32_t kPollsPerFailureCheck = 256;

/// A collective on a board: the exchange of lines, and for large ones the path that they choose.
class BoardOperation final : public Operation {
 public:
  BoardOperation(Board& board, uint64_t op, const OpRequest& request, bool published)
      : exchange_(board, op, request), state_(published ? State::kGather : State::kAdmit) {}

  Progress poll(bool oldest) override {
    Progress total = Progress::kIdle;
    while (state_ != State::kLarge) {
      const Progress now = state_ == State::kAdmit ? admit() : gather(oldest);
      if (now == Progress::kDone) return now;
      if (now == Progress::kIdle) break;
      total = Progress::kMoved;
    }
    if (state_ == State::kLarge) {
      const Progress now = work();
      if (now != Progress::kIdle) return now;
    }
    if (total == Progress::kIdle && ++idle_polls_ % kPollsPerFailureCheck == 0)
      return check_members();
    return total;
  }

  void abandon() override { exchange_.withdraw(); }

 private:
  enum class State { kAdmit, kGather, kLarge };

  Board& board() { return exchange_.board(); }

  std::string what_was_said(const Board::Failure& failure) {
    const int32_t reporter = board().member(failure.reporter).world_rank;
    std::string said = fmt::format("rank {} gave the group up", reporter);
    if (failure.culprit < 0 || failure.culprit == reporter) return said;
    if (failure.code == Code::kUnavailable)
      return said + fmt::format(": rank {} was lost", failure.culprit);
    if (failure.code == Code::kDeadlineExceeded)
      return fmt::format("rank {} was late: {}", failure.culprit, said);
    return said + fmt::format(" because of rank {}", failure.culprit);
  }

  Progress check_members() {
    const auto failure = board().find_failure(exchange_.op());
    if (!failure) return Progress::kIdle;
    return give_group_up({failure->code, what_was_said(*failure), {.rank = failure->culprit}});
  }

  Progress admit() {
    const auto missing = board().missing_member();
    if (!missing.ok()) return give_group_up(missing.status());
    if (!board().members_agree().ok()) return give_group_up(board().members_agree());
    if (*missing >= 0) {
      wait(obs::Phase::kQueued, *missing);
      return Progress::kIdle;
    }
    if (!exchange_.has_room()) {
      wait(obs::Phase::kQueued, board().holds_back());
      return Progress::kIdle;
    }
    exchange_.publish();
    state_ = State::kGather;
    return Progress::kMoved;
  }

  Progress gather(bool oldest) {
    if (const int32_t missing = exchange_.arrived(); missing < exchange_.size()) {
      const bool further = missing != waiting_for_;
      wait(obs::Phase::kExchange, missing);
      return further ? Progress::kMoved : Progress::kIdle;
    }
    if (Status agreed = exchange_.agreement(); !agreed.ok()) return finish(std::move(agreed));
    if (exchange_.all_small()) return take_small();
    if (!oldest) {
      wait(obs::Phase::kQueued, -1);
      return Progress::kIdle;
    }
    return start_large();
  }

  Progress take_small() {
    Status taken = exchange_.take_small();
    if (taken.ok()) return finish({});
    torn_ = true;
    return give_group_up(std::move(taken));
  }

  Progress start_large() {
    const bool whole = folds_whole_vectors(exchange_.request());
    if (!whole) {
      auto direct = make_direct_path(exchange_);
      if (!direct.ok()) return give_group_up(direct.status());
      path_ = std::move(*direct);
    }
    if (path_ == nullptr) {
      if (Status ready = board().prepare_stages(exchange_.op()); !ready.ok())
        return give_group_up(ready);
      path_ = whole ? make_pairwise_path(exchange_) : make_staged_path(exchange_);
    }
    torn_ = true;
    state_ = State::kLarge;
    return Progress::kMoved;
  }

  /// A member that has failed may have its buffers in use for something else. So nothing is done
  /// with them once that is known, and what was read of them counts only if none had failed by
  /// then.
  Progress work() {
    if (check_members() == Progress::kDone) return Progress::kDone;
    const Progress now = path_->poll(true);
    wait(path_->phase(), path_->waiting_for());
    if (now != Progress::kDone) return now;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (path_->status().ok() && check_members() == Progress::kDone) return Progress::kDone;
    return path_->fatal() ? give_group_up(path_->status()) : finish(path_->status());
  }

  BoardExchange exchange_;
  State state_;
  std::unique_ptr<Operation> path_;
  uint32_t idle_polls_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_board_operation(Board& board, uint64_t op, const OpRequest& request,
                                                bool published) {
  return std::make_unique<BoardOperation>(board, op, request, published);
}

}  // namespace corro::collective
