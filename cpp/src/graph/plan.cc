#include "graph/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "graph/cut.h"
#include "graph/ends.h"

namespace corro::graph {
namespace {

constexpr ServiceId kNone = std::numeric_limits<ServiceId>::max();
__extension__ using Wide = __int128;  // Products of two 64-bit quantities.

/// Start of `to` in generation g + tokens comes no earlier than start of `from` in g, plus
/// `duration`.
struct Edge {
  ServiceId from = 0;
  ServiceId to = 0;
  int64_t duration = 0;
  uint64_t tokens = 0;
};

void add_lane_edges(const Plan& plan, std::vector<Edge>& edges) {
  std::vector<std::vector<ServiceId>> members(plan.lanes.size());
  for (ServiceId id = 0; id < plan.services.size(); ++id)
    members[plan.services[id].lane].push_back(id);
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    if (plan.lanes[lane].order != LaneOrder::kAgreed) continue;
    const auto& turn = members[lane];
    for (size_t i = 0; i < turn.size(); ++i) {
      const bool last = i + 1 == turn.size();
      const int64_t duration =
          plan.lanes[lane].depth == 1 ? plan.services[turn[i]].duration.count() : 0;
      edges.push_back({turn[i], last ? turn.front() : turn[i + 1], duration, last ? 1U : 0U});
    }
  }
}

std::vector<Edge> edges_of(const Plan& plan) {
  std::vector<Edge> edges;
  const std::vector<ChannelEnds> ends = ends_of(plan);
  for (ServiceId id = 0; id < plan.services.size(); ++id) {
    const int64_t duration = plan.services[id].duration.count();
    edges.push_back({id, id, duration, 1});  // A service never overlaps itself.
    for (const ChannelId input : plan.services[id].inputs) {
      const ChannelSpec& channel = plan.channels[input];
      const ServiceId producer = ends[input].producers.front();
      edges.push_back({producer, id, plan.services[producer].duration.count(), channel.initial});
      edges.push_back({id, producer, duration, channel.slots - channel.initial});
    }
  }
  add_lane_edges(plan, edges);
  return edges;
}

/// Depth-first search over the edges without tokens; finds a cycle and keeps its services.
class CycleSearch {
 public:
  explicit CycleSearch(const Plan& plan)
      : next_(plan.services.size()), state_(plan.services.size(), State::kNew) {
    for (const Edge& edge : edges_of(plan)) {
      if (edge.tokens == 0) next_[edge.from].push_back(edge.to);
    }
  }

  std::vector<ServiceId> run() {
    for (ServiceId id = 0; id < next_.size(); ++id) {
      if (state_[id] == State::kNew && visit(id)) return cycle_;
    }
    return {};
  }

 private:
  enum class State : uint8_t { kNew, kOnPath, kDone };
  struct Frame {
    ServiceId service;
    size_t edge;
  };

  bool visit(ServiceId root) {
    std::vector<Frame> path{{root, 0}};
    state_[root] = State::kOnPath;
    while (!path.empty()) {
      Frame& top = path.back();
      if (top.edge == next_[top.service].size()) {
        state_[top.service] = State::kDone;
        path.pop_back();
        continue;
      }
      const ServiceId to = next_[top.service][top.edge++];
      if (state_[to] == State::kOnPath) {
        keep_cycle(path, to);
        return true;
      }
      if (state_[to] == State::kNew) {
        state_[to] = State::kOnPath;
        path.push_back({to, 0});
      }
    }
    return false;
  }

  void keep_cycle(const std::vector<Frame>& path, ServiceId first) {
    auto from = std::find_if(path.begin(), path.end(),
                             [first](const Frame& frame) { return frame.service == first; });
    for (; from != path.end(); ++from) cycle_.push_back(from->service);
  }

  std::vector<std::vector<ServiceId>> next_;
  std::vector<State> state_;
  std::vector<ServiceId> cycle_;
};

struct Ratio {
  Wide duration = 0;
  Wide tokens = 1;
};

/// Returns duration and tokens of a cycle whose ratio is above `bound`, or nothing when there is
/// none.
std::optional<Ratio> find_slower_cycle(const std::vector<Edge>& edges, size_t services,
                                       Ratio bound) {
  std::vector<Wide> longest(services, 0);
  std::vector<const Edge*> via(services, nullptr);
  ServiceId improved = kNone;
  for (size_t round = 0; round <= services; ++round) {
    improved = kNone;
    for (const Edge& edge : edges) {
      const Wide weight = edge.duration * bound.tokens - edge.tokens * bound.duration;
      if (longest[edge.from] + weight <= longest[edge.to]) continue;
      longest[edge.to] = longest[edge.from] + weight;
      via[edge.to] = &edge;
      improved = edge.to;
    }
    if (improved == kNone) return std::nullopt;
  }
  for (size_t i = 0; i < services; ++i) improved = via[improved]->from;  // Now surely on the cycle.
  Ratio found{.duration = 0, .tokens = 0};
  ServiceId at = improved;
  do {
    found.duration += via[at]->duration;
    found.tokens += via[at]->tokens;
    at = via[at]->from;
  } while (at != improved);
  return found;
}

void write_numbers(ByteWriter& writer, const std::vector<uint32_t>& numbers) {
  writer.write(static_cast<uint32_t>(numbers.size()));
  for (const uint32_t number : numbers) writer.write(number);
}

void write_service(ByteWriter& writer, const ServiceSpec& service) {
  writer.write_string(service.name);
  writer.write(service.lane);
  writer.write(service.priority);
  writer.write(service.duration.count());
  write_numbers(writer, service.inputs);
  write_numbers(writer, service.outputs);
  writer.write(static_cast<uint8_t>(service.operation.has_value()));
  if (!service.operation) return;
  writer.write(static_cast<uint8_t>(service.operation->kind));
  writer.write(static_cast<uint8_t>(service.operation->dtype));
  writer.write(service.operation->count);
  writer.write(static_cast<uint8_t>(service.operation->reduce_op));
  writer.write(service.operation->root);
}

}  // namespace

LaneId Plan::add_lane(LaneSpec spec) {
  lanes.push_back(std::move(spec));
  return static_cast<LaneId>(lanes.size() - 1);
}

ChannelId Plan::add_channel(ChannelSpec spec) {
  channels.push_back(std::move(spec));
  return static_cast<ChannelId>(channels.size() - 1);
}

ServiceId Plan::add_service(ServiceSpec spec) {
  services.push_back(std::move(spec));
  return static_cast<ServiceId>(services.size() - 1);
}

Status check(const Plan& plan, const PlanLimits& limits) {
  CORRO_TRY(check_form(plan).with_context("plan"));
  const Plan expanded = plan.ranks == 1 ? Plan{} : expand(plan);
  const Plan& whole = plan.ranks == 1 ? plan : expanded;
  if (const auto cycle = find_token_free_cycle(whole); !cycle.empty()) {
    std::string names;
    for (const ServiceId id : cycle) names += whole.services[id].name + " -> ";
    names += whole.services[cycle.front()].name;
    return {Code::kFailedPrecondition,
            "plan: would stand still, each waits for the next: " + names +
                "; give a channel on this cycle a slot or an initial token, or change the order of "
                "its lane"};
  }
  if (const uint64_t bytes = slot_bytes(whole); bytes > limits.max_slot_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("plan: its slots need {} bytes, the limit is {}; lower the channels' slots",
                        bytes, limits.max_slot_bytes)};
  }
  return {};
}

uint64_t slot_bytes(const Plan& plan) {
  Wide sum = 0;
  for (const ChannelSpec& channel : plan.channels) {
    sum += static_cast<Wide>(channel.slots) * channel.slot_bytes;
  }
  const Wide most = std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(std::min(sum, most));
}

uint64_t hash_of(const Plan& plan) {
  ByteWriter writer;
  writer.write(plan.epoch);
  writer.write(plan.ranks);
  writer.write(static_cast<uint32_t>(plan.lanes.size()));
  for (const LaneSpec& lane : plan.lanes) {
    writer.write_string(lane.name);
    writer.write(static_cast<uint8_t>(lane.order));
    writer.write(lane.depth);
    write_numbers(writer, lane.ranks);
  }
  writer.write(static_cast<uint32_t>(plan.channels.size()));
  for (const ChannelSpec& channel : plan.channels) {
    writer.write_string(channel.name);
    writer.write(channel.slots);
    writer.write(channel.initial);
    writer.write(channel.slot_bytes);
    writer.write(channel.transfer.count());
  }
  writer.write(static_cast<uint32_t>(plan.services.size()));
  for (const ServiceSpec& service : plan.services) write_service(writer, service);
  uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a (Fowler, Noll, Vo).
  for (const std::byte byte : writer.bytes()) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  }
  return hash;
}

std::vector<ServiceId> find_token_free_cycle(const Plan& plan) { return CycleSearch(plan).run(); }

double minimum_period_ns(const Plan& plan) {
  const std::vector<Edge> edges = edges_of(plan);
  Ratio slowest;
  while (const auto found = find_slower_cycle(edges, plan.services.size(), slowest)) {
    slowest = *found;
  }
  double period = static_cast<double>(slowest.duration) / static_cast<double>(slowest.tokens);
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    Wide work = 0;
    for (const ServiceSpec& service : plan.services) {
      if (service.lane == lane) work += service.duration.count();
    }
    period = std::max(period, static_cast<double>(work) / plan.lanes[lane].depth);
  }
  return period;
}

}  // namespace corro::graph
