#include "runtime/group.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

constexpr size_t kCachedSchedules = 256;

}  // namespace

int32_t Group::index_of(int32_t world_rank) const {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  return found == members.end() ? -1 : static_cast<int32_t>(found - members.begin());
}

Flight* Group::find(uint64_t op) const {
  for (const auto& flight : flights) {
    if (flight->op == op && !flight->over) return flight.get();
  }
  return nullptr;
}

std::string Group::describe_selection() const {
  if (board == nullptr || size() == 1) return collective::describe(*selection, size());
  return fmt::format(
      "{} ranks that share memory: up to {} bytes in a line, up to {} through a slot, above that "
      "directly; private memory above {} bytes, or that may not be read, in stages. "
      "CORRO_ALGORITHMS chooses nothing here\n",
      size(), collective::kLineBytes, collective::kSlotBytes, collective::kMostCopiedBytes);
}

std::unique_ptr<collective::Operation> Group::make_operation(const Flight& flight) {
  const collective::OpRequest& request = *flight.request;
  if (is_pair(request.kind)) return collective::make_pair_operation(links, flight.op, request);
  if (board != nullptr)
    return collective::make_board_operation(*board, flight.op, request, flight.published);
  return collective::make_schedule_operation(links, flight.op, request, schedule_for(request));
}

std::shared_ptr<const collective::Schedule> Group::schedule_for(
    const collective::OpRequest& request) {
  const bool in_place = request.input != nullptr && request.output != nullptr &&
                        request.input == static_cast<const std::byte*>(request.output);
  const bool even = request.counts.empty() && request.send_counts.empty();
  const std::pair key(collective::signature_of(request, size()).pack().call, in_place);
  if (even) {
    if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  }
  const uint64_t element = size_of(request.dtype);
  const collective::Problem problem{.kind = request.kind,
                                    .size = size(),
                                    .rank = rank,
                                    .root = has_root(request.kind) ? request.root : 0,
                                    .count = request.count,
                                    .counts = request.counts,
                                    .send_counts = request.send_counts,
                                    .in_place = in_place,
                                    .at_once = collective::folds_at_once(request),
                                    .chunk_count = collective::kPipelineChunkBytes / element};
  const auto algorithm = collective::choose(*selection, problem, element);
  auto schedule =
      std::make_shared<const collective::Schedule>(collective::generate(problem, algorithm));
  if (even) {
    if (schedules_.size() >= kCachedSchedules) schedules_.clear();
    schedules_.emplace(key, schedule);
  }
  return schedule;
}

}  // namespace corro::runtime
