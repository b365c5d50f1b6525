// BoardFabric: a lane whose members all map each other's segments.
#pragma once

#include <memory>
#include <utility>

#include "collective/board/board.h"
#include "collective/fabric.h"

namespace corro::collective {

class BoardFabric final : public Fabric {
 public:
  BoardFabric(std::unique_ptr<Board> board, SegmentPool& scratch)
      : Fabric(board->size(), scratch), board_(std::move(board)) {}

  [[nodiscard]] FabricTraits traits() const override { return {.by_rank_order = true}; }
  [[nodiscard]] std::string describe() const override;
  bool begin_now(uint64_t op, const OpRequest& request,
                 std::optional<BoardExchange>& exchange) override;
  void set_completed(uint64_t op) override { board_->set_completed(op); }
  bool set_failed(Code code, int32_t culprit_world_rank) override {
    return board_->set_failed(code, culprit_world_rank);
  }
  [[nodiscard]] std::string last_operation_of(int32_t r) const override {
    return board_->last_operation_of(r);
  }
  [[nodiscard]] bool leave(const std::function<bool(int32_t world_rank)>& gone) override {
    board_->leave();
    return board_->forsaken(gone);
  }

 private:
  [[nodiscard]] std::unique_ptr<Operation> start_plain(uint64_t op, const OpRequest& request,
                                                       bool published) override;

  std::unique_ptr<Board> board_;
};

}  // namespace corro::collective
