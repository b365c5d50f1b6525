#include "collective/served_fabric.h"

#include <algorithm>

namespace corro::collective {
namespace {

constexpr size_t kCachedChoices = 256;

Links with_aggregators(Links members, const LaneKey& lane, const ServedLinks& aggregators) {
  members.lane = lane;
  for (int32_t i = 0; i < aggregators.count(); ++i) {
    members.endpoints.push_back(&aggregators.endpoint(i));
    members.world_ranks.push_back(-1);
  }
  return members;
}

Links copy_of(const Links& links, const LaneKey& lane) {
  return {.lane = lane,
          .rank = links.rank,
          .endpoints = links.endpoints,
          .world_ranks = links.world_ranks};
}

}  // namespace

ServedFabric::ServedFabric(std::unique_ptr<Fabric> plain, ServedFabricOptions options,
                           const SelectionTable& selection, ServedLinks& aggregators,
                           SegmentPool& scratch)
    : Fabric(options.members.size(), scratch),
      plain_(std::move(plain)),
      selection_(selection),
      lane_{.data =
                with_aggregators(copy_of(options.members, options.data), options.data, aggregators),
            .words = copy_of(options.members, options.members.lane),
            .aggregators = aggregators,
            .timeout = options.timeout},
      hosts_(std::move(options.hosts)),
      with_aggregators_(collective::with_aggregators(hosts_, aggregators.count())) {}

std::string ServedFabric::describe() const {
  if (lane_.aggregators.lost())
    return plain_->describe() +
           "servers take part in no allreduce any more: one was lost, or an "
           "allreduce was given up\n";
  return plain_->describe() + describe_served(selection_, hosts_, lane_.aggregators.count());
}

void ServedFabric::set_completed(uint64_t op) {
  plain_->set_completed(op);
  lane_.completed = op;
  retire_below(lane_.data, op);
}

std::unique_ptr<Operation> ServedFabric::start_plain(uint64_t op, const OpRequest& request,
                                                     bool published) {
  const auto alone = [this, op, &request, published] {
    return plain_->start(op, request, published);
  };
  // What travels in another form is not folded as its dtype says.
  const bool may_be_served =
      request.kind == OpKind::kAllreduce && request.element == 0 && op < lane_.ends_at;
  if (!may_be_served) return alone();
  const Choice& choice = choice_for(request);
  if (choice.schedule == nullptr) return alone();
  return make_served_operation(lane_, op, request, choice.schedule, choice.folds_as, alone);
}

const ServedFabric::Choice& ServedFabric::choice_for(const OpRequest& request) {
  const uint64_t key = signature_of(request, hosts_.size()).pack().call;
  if (const auto found = choices_.find(key); found != choices_.end()) return found->second;
  const uint64_t element = size_of(request.dtype);
  const Problem alone{.kind = request.kind,
                      .size = hosts_.size(),
                      .rank = lane_.words.rank,
                      .count = request.count,
                      .at_once = folds_at_once(request),
                      .whole = folds_whole_vectors(request),
                      .chunk_count = kPipelineChunkBytes / element,
                      .topology = &hosts_};
  Choice choice;
  if (const auto served =
          choose_served(selection_, alone, lane_.aggregators.count(), with_aggregators_, element)) {
    choice = {std::make_shared<const Schedule>(generate(*served, Algorithm::kServed)),
              served->folds_as};
  }
  if (choices_.size() >= kCachedChoices) choices_.clear();
  return choices_.insert_or_assign(key, std::move(choice)).first->second;
}

}  // namespace corro::collective
