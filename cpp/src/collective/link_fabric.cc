#include "collective/link_fabric.h"

#include <fmt/format.h>

namespace corro::collective {
namespace {

constexpr size_t kCachedSchedules = 256;

}  // namespace

std::string LinkFabric::describe() const { return collective::describe(selection_, links_.size()); }

std::unique_ptr<Operation> LinkFabric::start(uint64_t op, const OpRequest& request,
                                             bool /*published*/) {
  return make_schedule_operation(links_, op, request, schedule_for(request));
}

void LinkFabric::set_completed(uint64_t op) {
  for (transport::Endpoint* endpoint : links_.endpoints) {
    if (endpoint != nullptr) endpoint->retire_below(links_.lane, op);
  }
}

std::string LinkFabric::last_operation_of(int32_t r) const {
  const transport::Endpoint* endpoint = links_.endpoints[static_cast<size_t>(r)];
  if (endpoint == nullptr || !endpoint->last_message()) return "it has sent nothing yet";
  const transport::MessageHead& last = *endpoint->last_message();
  const std::string call = Signature::unpack(last.signature).describe();
  if (last.key.lane == links_.lane) {
    return fmt::format("its last message on this group was of #{} {}", last.key.op + 1, call);
  }
  return "its last message was of " + call + ", elsewhere";
}

std::shared_ptr<const Schedule> LinkFabric::schedule_for(const OpRequest& request) {
  const bool in_place = request.input != nullptr && request.output != nullptr &&
                        request.input == static_cast<const std::byte*>(request.output);
  const bool even = request.counts.empty() && request.send_counts.empty();
  const std::pair key(signature_of(request, links_.size()).pack().call, in_place);
  if (even) {
    if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  }
  const uint64_t element = size_of(request.dtype);
  const Problem problem{.kind = request.kind,
                        .size = links_.size(),
                        .rank = links_.rank,
                        .root = has_root(request.kind) ? request.root : 0,
                        .count = request.count,
                        .counts = request.counts,
                        .send_counts = request.send_counts,
                        .in_place = in_place,
                        .at_once = folds_at_once(request),
                        .chunk_count = kPipelineChunkBytes / element};
  const auto algorithm = choose(selection_, problem, element);
  auto schedule = std::make_shared<const Schedule>(generate(problem, algorithm));
  if (even) {
    if (schedules_.size() >= kCachedSchedules) schedules_.clear();
    schedules_.emplace(key, schedule);
  }
  return schedule;
}

}  // namespace corro::collective
