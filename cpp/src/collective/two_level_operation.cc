// An operation of a lane whose ranks are on several hosts.
//
//   admit: the rank publishes its line on the host's board, and in it where its stage is
//   gather: it reads the lines of its host, which show what all have called, and where their stages
//           are
//   run: the schedule; a flat one, without stages, runs while lines are gathered
//
// No operation ends before all lines are gathered, not even one whose schedule needs no neighbour.
// So a rank of this host that has called something else is always seen. And whoever has ended one
// may leave the lane: a rank that publishes a line has found the sections of all others, and none
// looks for one that is gone. What ranks of other hosts have called, messages show; whoever finds a
// difference tells all by CANCEL.
#include <algorithm>

#include "collective/host_stages.h"
#include "collective/two_level_fabric.h"

namespace corro::collective {
namespace {

class TwoLevelOperation final : public Operation {
 public:
  TwoLevelOperation(const HostLane& lane, uint64_t op, const OpRequest& request,
                    std::shared_ptr<const Schedule> schedule)
      : lane_(lane),
        op_(op),
        request_(request),
        signature_(signature_of(request, lane.topology.size()).pack()),
        staged_(uses_stages(*schedule)),
        stage_bytes_(schedule->stage_count * size_of(request.dtype)),
        stages_(lane.board, lane.topology),
        run_(make_schedule_operation(lane.links, op, request, std::move(schedule), &stages_)) {}

  Progress poll(bool oldest) override {
    const Progress met = meet(oldest);
    if (met == Progress::kDone) return met;
    const Progress ran = run(oldest);
    if (ran == Progress::kDone) return ran;
    if (ran_ && gathered_ == lane_.board.size()) return finish({});
    return met == Progress::kMoved ? met : ran;
  }

  void abandon() override { run_->abandon(); }

 private:
  static bool uses_stages(const Schedule& schedule) {
    return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                       [](const Step& step) { return step.kind == StepKind::kMark; });
  }

  /// Waits for a rank of this host, by its place; -1: for an older operation.
  Progress wait_for(obs::Phase phase, int32_t place) {
    wait(phase, place < 0 ? -1 : group_rank(place));
    return Progress::kIdle;
  }
  [[nodiscard]] int32_t group_rank(int32_t place) const {
    const Topology& topology = lane_.topology;
    return topology.ranks_on(topology.host_of(lane_.links.rank))[static_cast<size_t>(place)];
  }
  [[nodiscard]] const Line& line_of(int32_t place) const {
    return lane_.board.member(place).section->lines[op_ % kLines];
  }

  /// Publishes the own line, then reads the others'.
  Progress meet(bool oldest) {
    if (admitted_) return gather();
    const Progress now = admit(oldest);
    return now == Progress::kMoved && gather() == Progress::kDone ? Progress::kDone : now;
  }

  Progress run(bool oldest) {
    if (!admitted_ || ran_ || (staged_ && gathered_ < lane_.board.size())) return Progress::kIdle;
    const Progress now = run_->poll(oldest);
    torn_ = run_->torn();
    if (now != Progress::kDone) {
      wait(run_->phase(), run_->waiting_for());
      return now;
    }
    ran_ = true;
    return run_->status().ok() ? Progress::kMoved : finish(run_->status());
  }

  Progress admit(bool oldest) {
    Board& board = lane_.board;
    const auto missing = board.missing_member();
    if (!missing.ok()) return give_group_up(missing.status());
    if (*missing >= 0) return wait_for(obs::Phase::kQueued, *missing);
    if (!board.line_free(op_)) return wait_for(obs::Phase::kQueued, board.holds_back());
    if (staged_) {
      const uint64_t bytes = sizeof(StageHead) + stage_bytes_;
      if (!oldest && StagePool::is_large(bytes)) return wait_for(obs::Phase::kQueued, -1);
      const auto area = board.borrow(op_, bytes);
      if (!area.ok()) return give_group_up(area.status());
      if (*area == nullptr) return wait_for(obs::Phase::kQueued, board.holds_back());
      place_ = (*area)->place;
      auto& head = *reinterpret_cast<StageHead*>((*area)->memory);
      for (auto& mark : head.marks) mark.strands.store(0, std::memory_order_relaxed);
    }
    publish_line();
    admitted_ = true;
    return Progress::kMoved;
  }

  void publish_line() {
    Line& line = lane_.board.own().lines[op_ % kLines];
    line.call = signature_.call;
    line.shape = signature_.shape;
    line.extras = signature_.extras;
    line.element = signature_.element;
    line.reads = 0;
    line.where = staged_ ? Where::kMapped : Where::kLine;
    line.input_place = place_;
    line.output_place = 0;
    lane_.board.publish(line.stamp, op_ + 1);
  }

  Progress gather() {
    const int32_t before = gathered_;
    for (; gathered_ < lane_.board.size(); ++gathered_) {
      const Line& line = line_of(gathered_);
      if (line.stamp.load(std::memory_order_seq_cst) != op_ + 1) {
        wait(obs::Phase::kExchange, group_rank(gathered_));
        break;
      }
      if (line.signature() != signature_) return finish(mismatch(line, gathered_));
      if (Status found = find_stage(line); !found.ok()) return give_group_up(std::move(found));
    }
    return gathered_ > before ? Progress::kMoved : Progress::kIdle;
  }

  /// The stage that the line at place `gathered_` names.
  Status find_stage(const Line& line) {
    if (!staged_) return {};
    CORRO_ASSIGN(const bool found,
                 stages_.find(gathered_, read_once(line.input_place), stage_bytes_));
    if (found) return {};
    return describe_impossible(lane_.board, op_, request_, gathered_,
                               "its stage is not in its memory");
  }

  [[nodiscard]] Status mismatch(const Line& line, int32_t place) const {
    const Board& board = lane_.board;
    return describe_mismatch(board, op_, request_,
                             describe_difference(board.member(board.rank()).world_rank, signature_,
                                                 board.member(place).world_rank, line.signature()),
                             place);
  }

  const HostLane& lane_;
  const uint64_t op_;
  const OpRequest& request_;
  const SignatureBits signature_;
  const bool staged_;
  const uint64_t stage_bytes_;
  bool admitted_ = false;
  int32_t gathered_ = 0;  ///< Lines read.
  bool ran_ = false;
  uint64_t place_ = 0;  ///< Of the own stage, in the own segment.
  HostStages stages_;
  const std::unique_ptr<Operation> run_;
};

}  // namespace

std::unique_ptr<Operation> make_two_level_operation(const HostLane& lane, uint64_t op,
                                                    const OpRequest& request,
                                                    std::shared_ptr<const Schedule> schedule) {
  return std::make_unique<TwoLevelOperation>(lane, op, request, std::move(schedule));
}

}  // namespace corro::collective
