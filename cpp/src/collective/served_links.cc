#include "collective/served_links.h"

#include <algorithm>

namespace corro::collective {

ServedLinks::ServedLinks(std::vector<std::unique_ptr<transport::Stream>> streams,
                         const ServedGroup& group, const obs::Metrics& metrics)
    : group_(group), metrics_(metrics), greetings_(streams.size()), sends_(streams.size()) {
  ServedGroup own = group;
  own.aggregators = static_cast<int32_t>(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    endpoints_.push_back(std::make_unique<transport::Endpoint>(
        std::move(streams[i]), [](const wire::Control&) {}, transport::EndpointLimits{},
        transport::Endpoint::StrayHandler{}, metrics));
    own.index = static_cast<int32_t>(i);
    greetings_[i] = encode(own);
    sends_[i] = {.key = {.lane = kServedLane, .op = 0, .step = 0},
                 .signature = {},
                 .payload = greetings_[i]};
    endpoints_[i]->post_send(sends_[i]);
  }
}

ServedLinks::~ServedLinks() { end(); }

bool ServedLinks::progress() {
  bool moved = false;
  for (const auto& endpoint : endpoints_)
    moved = (!endpoint->closed() && endpoint->progress()) || moved;
  return moved;
}

bool ServedLinks::lost() const {
  return std::ranges::any_of(endpoints_, [](const auto& one) { return one->closed(); });
}

void ServedLinks::end() {
  for (const auto& endpoint : endpoints_) endpoint->close();
}

void ServedLinks::close_lane(const LaneKey& lane) {
  for (const auto& endpoint : endpoints_) endpoint->close_lane(lane);
}

void ServedLinks::close_in_child() {
  for (const auto& endpoint : endpoints_) endpoint->close_in_child();
}

}  // namespace corro::collective
