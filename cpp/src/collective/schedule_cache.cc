#include "collective/schedule_cache.h"

namespace corro::collective {
namespace {

constexpr size_t kCachedSchedules = 256;

}  // namespace

std::shared_ptr<const Schedule> ScheduleCache::schedule_for(const OpRequest& request) {
  const bool in_place = request.input != nullptr && request.output != nullptr &&
                        request.input == static_cast<const std::byte*>(request.output);
  const bool even = request.counts.empty() && request.send_counts.empty();
  const std::pair key(signature_of(request, topology_.size()).pack().call, in_place);
  if (even) {
    if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  }
  const uint64_t element = size_of(request.dtype);
  const Problem problem{.kind = request.kind,
                        .size = topology_.size(),
                        .rank = rank_,
                        .root = has_root(request.kind) ? request.root : 0,
                        .count = request.count,
                        .counts = request.counts,
                        .send_counts = request.send_counts,
                        .in_place = in_place,
                        .at_once = folds_at_once(request),
                        .whole = folds_whole_vectors(request),
                        .chunk_count = kPipelineChunkBytes / element,
                        .topology = &topology_};
  const auto algorithm = choose(selection_, problem, element);
  auto schedule = std::make_shared<const Schedule>(generate(problem, algorithm));
  if (even) {
    if (schedules_.size() >= kCachedSchedules) schedules_.clear();
    schedules_.emplace(key, schedule);
  }
  return schedule;
}

}  // namespace corro::collective
