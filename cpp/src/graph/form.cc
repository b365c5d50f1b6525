// check_form: what is wrong with a plan before any search, and where.
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "graph/ends.h"
#include "graph/plan.h"

namespace corro::graph {
namespace {

Status invalid(std::string place, std::string_view what) {
  return {Code::kInvalidArgument, std::move(place) + ": " + std::string(what)};
}

/// Checks a plan list by list; every message begins with the place.
class Form {
 public:
  explicit Form(const Plan& plan)
      : plan_(plan),
        step_(step_of(plan)),
        named_by_(plan.channels.size()),
        every_(plan.lanes.size()) {}

  Status run() {
    if (plan_.ranks == 0 || plan_.ranks > kMostRanks) {
      return invalid("ranks", fmt::format("must be from 1 to {}", kMostRanks));
    }
    for (LaneId id = 0; id < plan_.lanes.size(); ++id) CORRO_TRY(check_lane(id));
    for (ChannelId id = 0; id < plan_.channels.size(); ++id) CORRO_TRY(check_channel(id));
    for (ServiceId id = 0; id < plan_.services.size(); ++id) CORRO_TRY(check_service(id));
    const std::vector<ChannelEnds> ends = ends_of(plan_);
    for (ChannelId id = 0; id < plan_.channels.size(); ++id) CORRO_TRY(check_ends(id, ends[id]));
    return {};
  }

 private:
  [[nodiscard]] Status check_lane(LaneId id) const {
    const LaneSpec& lane = plan_.lanes[id];
    const auto at = [id](const char* field) { return fmt::format("lanes[{}].{}", id, field); };
    const auto falls = std::adjacent_find(lane.ranks.begin(), lane.ranks.end(),
                                          [](uint32_t a, uint32_t b) { return a >= b; });
    if (lane.ranks.empty() || falls != lane.ranks.end() || lane.ranks.back() >= plan_.ranks) {
      return invalid(at("ranks"),
                     fmt::format("must be one or more ranks from 0 to {}, each greater than the "
                                 "one before",
                                 plan_.ranks - 1));
    }
    if (lane.ranks.size() > 1 && lane.order != LaneOrder::kAgreed) {
      return invalid(at("order"), "must be \"agreed\" on a lane of several ranks");
    }
    if (lane.depth == 0 || lane.depth > kMostDepth) {
      return invalid(at("depth"), fmt::format("must be from 1 to {}", kMostDepth));
    }
    return {};
  }

  [[nodiscard]] Status check_channel(ChannelId id) const {
    const ChannelSpec& channel = plan_.channels[id];
    const auto at = [id](const char* field) { return fmt::format("channels[{}].{}", id, field); };
    if (channel.slots == 0 || channel.slots > kMostSlots) {
      return invalid(at("slots"), fmt::format("must be from 1 to {}", kMostSlots));
    }
    if (channel.initial > channel.slots) {
      return invalid(at("initial"), fmt::format("must be at most its slots, {}", channel.slots));
    }
    if (channel.slot_bytes > kMostSlotBytes) {
      return invalid(at("slot_bytes"), fmt::format("must be from 0 to {}", kMostSlotBytes));
    }
    return check_duration(at("transfer_ns"), channel.transfer);
  }

  Status check_service(ServiceId id) {
    const ServiceSpec& service = plan_.services[id];
    const auto at = [id](const char* field) { return fmt::format("services[{}].{}", id, field); };
    if (service.lane >= plan_.lanes.size()) {
      return invalid(at("lane"),
                     fmt::format("there is no lane {} of {}", service.lane, plan_.lanes.size()));
    }
    CORRO_TRY(check_lag(at("lag"), service));
    CORRO_TRY(check_every(at("every"), service));
    CORRO_TRY(check_duration(at("duration_ns"), service.duration));
    CORRO_TRY(check_channels(at("inputs"), 2 * id + 1, service.inputs));
    CORRO_TRY(check_channels(at("outputs"), 2 * id + 2, service.outputs));
    CORRO_TRY(check_operation(at("operation"), service));
    return check_copy(at("copy"), service);
  }

  [[nodiscard]] Status check_lag(std::string place, const ServiceSpec& service) const {
    const LaneSpec& lane = plan_.lanes[service.lane];
    if (service.lag > kMostLag)
      return invalid(std::move(place), fmt::format("must be from 0 to {}", kMostLag));
    if (service.lag == 0 || lane.order == LaneOrder::kAgreed) return {};
    return invalid(std::move(place), fmt::format("needs a lane in agreed order; \"{}\" is in order "
                                                 "of priority",
                                                 lane.name));
  }

  Status check_every(std::string place, const ServiceSpec& service) {
    if (service.every == 0 || service.every > kMostEvery)
      return invalid(std::move(place), fmt::format("must be from 1 to {}", kMostEvery));
    if (step_ % service.every != 0)
      return invalid(std::move(place), fmt::format("must divide {}, the largest", step_));
    firings_ += step_ / service.every;
    if (step_ > 1 && firings_ > kMostFirings) {
      return invalid(std::move(place), fmt::format("{} micro-batches have more than {} firings",
                                                   step_, kMostFirings));
    }
    if (service.every > 1 && service.lag > 0)
      return invalid(std::move(place), "has no lag beside it");
    const LaneSpec& lane = plan_.lanes[service.lane];
    uint32_t& of_lane = every_[service.lane];
    if (of_lane == 0) of_lane = service.every;
    if (of_lane == service.every || lane.order != LaneOrder::kAgreed) return {};
    return invalid(std::move(place),
                   fmt::format("must be {}, as of the other services of lane \"{}\","
                               " which is in agreed order",
                               of_lane, lane.name));
  }

  static Status check_duration(std::string place, Duration duration) {
    if (duration >= Duration::zero() && duration <= kMostDuration) return {};
    return invalid(std::move(place), fmt::format("must be from 0 to {}", kMostDuration.count()));
  }

  /// `side` is another number for each list of ends.
  Status check_channels(const std::string& place, size_t side, const std::vector<ChannelId>& ends) {
    for (const ChannelId channel : ends) {
      if (channel >= plan_.channels.size()) {
        return invalid(place,
                       fmt::format("there is no channel {} of {}", channel, plan_.channels.size()));
      }
      if (std::exchange(named_by_[channel], side) == side) {
        return invalid(place,
                       fmt::format("channel \"{}\" comes twice", plan_.channels[channel].name));
      }
    }
    return {};
  }

  [[nodiscard]] Status check_operation(const std::string& place, const ServiceSpec& service) const {
    const LaneSpec& lane = plan_.lanes[service.lane];
    if (!service.operation) {
      if (lane.ranks.size() == 1) return {};
      return invalid(place, fmt::format("is missing; lane \"{}\" has several ranks", lane.name));
    }
    const OperationSpec& operation = *service.operation;
    if (lane.order != LaneOrder::kAgreed) {
      return invalid(
          place,
          fmt::format("needs a lane in agreed order; \"{}\" is in order of priority", lane.name));
    }
    if (is_pair(operation.kind)) {
      return invalid(place + ".kind", "must be a collective; a channel between ranks is a send");
    }
    if (operation.count > kMostCount) {
      return invalid(place + ".count", fmt::format("must be from 0 to {}", kMostCount));
    }
    if (has_root(operation.kind) &&
        !std::binary_search(lane.ranks.begin(), lane.ranks.end(), operation.root)) {
      return invalid(place + ".root", fmt::format("must be a rank of lane \"{}\"", lane.name));
    }
    return {};
  }

  [[nodiscard]] Status check_copy(const std::string& place, const ServiceSpec& service) const {
    if (!service.copy) return {};
    const CopySpec& copy = *service.copy;
    if (service.operation) return invalid(place, "must not be there beside an operation");
    const bool has_file = copy.kind != CopyKind::kMemory;
    if (!has_file && !copy.path.empty()) return invalid(place + ".path", "memory has none");
    if (has_file && (copy.path.empty() || copy.path.size() > kMostPathBytes)) {
      return invalid(place + ".path", fmt::format("must be 1 to {} bytes", kMostPathBytes));
    }
    const auto most = [&](const char* field, uint64_t value, uint64_t limit) {
      if (!has_file && value > 0) return invalid(place + field, "memory has none");
      if (value <= limit) return Status();
      return invalid(place + field, fmt::format("must be from 0 to {}", limit));
    };
    CORRO_TRY(most(".offset", copy.offset, kMostOffset));
    CORRO_TRY(most(".stride", copy.stride, kMostSlotBytes));
    CORRO_TRY(most(".count", copy.count, kMostRanges));
    return check_copied(place, service);
  }

  /// A read fills one slot, a write takes one, and memory's goes into one with room for it.
  [[nodiscard]] Status check_copied(const std::string& place, const ServiceSpec& service) const {
    const CopyKind kind = service.copy->kind;
    const auto from = with_memory(service.inputs);
    const auto into = with_memory(service.outputs);
    const auto needs = [&](size_t needed, std::string_view side, size_t found) {
      if (found == needed) return Status();
      return invalid(place, fmt::format("{} needs {} {} with memory, and has {}", name_of(kind),
                                        needed, side, found));
    };
    CORRO_TRY(needs(kind == CopyKind::kRead ? 0 : 1, "inputs", from.size()));
    CORRO_TRY(needs(kind == CopyKind::kWrite ? 0 : 1, "outputs", into.size()));
    if (kind != CopyKind::kMemory || into[0]->slot_bytes >= from[0]->slot_bytes) return {};
    return invalid(
        place, fmt::format(R"(must not copy {} bytes of "{}" into {} of "{}")", from[0]->slot_bytes,
                           from[0]->name, into[0]->slot_bytes, into[0]->name));
  }

  [[nodiscard]] std::vector<const ChannelSpec*> with_memory(
      const std::vector<ChannelId>& ends) const {
    std::vector<const ChannelSpec*> found;
    for (const ChannelId id : ends) {
      if (plan_.channels[id].slot_bytes > 0) found.push_back(&plan_.channels[id]);
    }
    return found;
  }

  [[nodiscard]] Status check_ends(ChannelId id, const ChannelEnds& ends) const {
    const ChannelSpec& channel = plan_.channels[id];
    const std::string place = fmt::format("channels[{}]", id);
    if (ends.producers.size() != 1 || ends.consumers.empty()) {
      return invalid(place,
                     fmt::format("\"{}\" has {} producers and {} consumers; it needs one "
                                 "producer and at least one consumer",
                                 channel.name, ends.producers.size(), ends.consumers.size()));
    }
    size_t crossing = 0;
    for (const ServiceId consumer : ends.consumers) {
      CORRO_TRY(check_pace(id, ends.producers.front(), consumer));
      if (meet(ends.producers.front(), consumer)) continue;
      ++crossing;
      if (ranks_of(plan_, ends.producers.front()).size() == 1 &&
          ranks_of(plan_, consumer).size() == 1) {
        continue;
      }
      return invalid(place,
                     fmt::format("\"{}\" joins {} and {}, which have no rank in common; only "
                                 "a service of one rank can send, to one of one rank",
                                 channel.name, plan_.services[ends.producers.front()].name,
                                 plan_.services[consumer].name));
    }
    if (crossing == 0 && channel.transfer > Duration::zero()) {
      return invalid(place + ".transfer_ns", "must be 0: both ends are on one rank");
    }
    if (crossing > 0 && crossing < ends.consumers.size() && channel.initial > 0) {
      return invalid(place + ".initial",
                     "must be 0 where some consumers are on the producer's rank and some are not; "
                     "make two channels");
    }
    return {};
  }

  [[nodiscard]] Status check_pace(ChannelId id, ServiceId producer, ServiceId consumer) const {
    const ChannelSpec& channel = plan_.channels[id];
    const ServiceSpec& reader = plan_.services[consumer];
    const uint32_t fills = plan_.services[producer].every;
    const std::string place = fmt::format("channels[{}]", id);
    if (fills % reader.every != 0 && reader.every % fills != 0) {
      return invalid(place,
                     fmt::format("\"{}\" joins {}, every {}, and {}, every {}; one has to divide "
                                 "the other",
                                 channel.name, plan_.services[producer].name, fills, reader.name,
                                 reader.every));
    }
    const uint32_t takes = pace_of(plan_, producer, consumer).takes;
    if (takes > channel.slots) {
      return invalid(place + ".slots", fmt::format("must be at least {}, which {} takes at a time",
                                                   takes, reader.name));
    }
    if (takes > 1 && channel.slot_bytes > 0 && (reader.operation || reader.copy)) {
      return invalid(place,
                     fmt::format("\"{}\" has memory, of which {} would take {} slots at a time; "
                                 "only a function can",
                                 channel.name, reader.name, takes));
    }
    return {};
  }

  /// True if the services have a rank in common. Looks for the fewer ranks among the more.
  [[nodiscard]] bool meet(ServiceId a, ServiceId b) const {
    if (ranks_of(plan_, a).size() > ranks_of(plan_, b).size()) std::swap(a, b);
    return std::ranges::any_of(ranks_of(plan_, a),
                               [&](uint32_t rank) { return is_on(plan_, b, rank); });
  }

  const Plan& plan_;
  uint32_t step_;
  std::vector<size_t> named_by_;  ///< By channel: the last list that named it.
  std::vector<uint32_t> every_;   ///< By lane: of its first service; 0: it has none yet.
  uint64_t firings_ = 0;          ///< Of a step, so far.
};

}  // namespace

Status check_form(const Plan& plan) { return Form(plan).run(); }

}  // namespace corro::graph
