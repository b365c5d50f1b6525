// TwoLevelFabric: a lane whose ranks are on several hosts, with several ranks on some: shared
// memory inside a host, messages among hosts. Which schedule runs an operation, two-level or flat,
// the selection table says that all members have agreed on.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "collective/board/board.h"
#include "collective/fabric.h"
#include "collective/runner.h"
#include "collective/schedule_cache.h"

namespace corro::collective {

/// What the operations of such a lane share. On the board a rank is its place on the host.
struct HostLane {
  Links& links;
  const Topology& topology;
  Board& board;
};

class TwoLevelFabric final : public Fabric {
 public:
  /// `board`: of the ranks of this host, ascending. The endpoints and the table outlive it; the
  /// table changes only while nothing has run.
  TwoLevelFabric(Links links, Topology topology, const SelectionTable& selection,
                 std::unique_ptr<Board> board, SegmentPool& scratch)
      : Fabric(links.size(), scratch),
        links_(std::move(links)),
        schedules_(links_.rank, std::move(topology), selection),
        board_(std::move(board)) {}

  [[nodiscard]] FabricTraits traits() const override { return {.by_messages = true}; }
  [[nodiscard]] std::string describe() const override { return schedules_.describe(); }
  bool begin_now(uint64_t /*op*/, const OpRequest& /*request*/,
                 std::optional<BoardExchange>& /*exchange*/) override {
    return false;
  }
  void set_completed(uint64_t op) override;
  /// Messages tell the members of this host, too.
  bool set_failed(Code /*code*/, int32_t /*culprit*/) override {
    board_->keep_stages();
    return true;
  }
  [[nodiscard]] std::string last_operation_of(int32_t r) const override;
  [[nodiscard]] bool leave(const std::function<bool(int32_t world_rank)>& gone) override;

 private:
  [[nodiscard]] std::unique_ptr<Operation> start_plain(uint64_t op, const OpRequest& request,
                                                       bool published) override;

  Links links_;
  ScheduleCache schedules_;
  std::unique_ptr<Board> board_;
  const HostLane lane_{links_, schedules_.topology(), *board_};
};

/// One operation. Lane and request are borrowed and outlive it.
[[nodiscard]] std::unique_ptr<Operation> make_two_level_operation(
    const HostLane& lane, uint64_t op, const OpRequest& request,
    std::shared_ptr<const Schedule> schedule);

}  // namespace corro::collective
