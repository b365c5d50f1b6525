#include "collective/board_fabric.h"

#include <fmt/format.h>

namespace corro::collective {

std::string BoardFabric::describe() const {
  return fmt::format(
      "{} ranks that share memory: up to {} bytes in a line, up to {} through a slot, above that "
      "directly; private memory above {} bytes, or that may not be read, in stages. "
      "CORRO_ALGORITHMS chooses nothing here\n",
      board_->size(), kLineBytes, kSlotBytes, kMostCopiedBytes);
}

std::unique_ptr<Operation> BoardFabric::start_plain(uint64_t op, const OpRequest& request,
                                                    bool published) {
  return make_board_operation(*board_, op, request, published);
}

bool BoardFabric::begin_now(uint64_t op, const OpRequest& request,
                            std::optional<BoardExchange>& exchange) {
  if (request.codec != nullptr || !request.counts.empty() || !request.send_counts.empty() ||
      !validate_sizes(request, board_->rank(), board_->size()).ok()) {
    return false;
  }
  exchange.emplace(*board_, op, request);
  const auto all_there = [this] {
    const auto missing = board_->missing_member();
    return missing.ok() && *missing < 0 && board_->members_agree().ok();
  };
  if (exchange->certainly_small() && all_there() && exchange->has_room() &&
      validate_buffers(request, exchange->shape(), board_->rank()).ok()) {
    exchange->publish();
    return true;
  }
  exchange.reset();
  return false;
}

}  // namespace corro::collective
