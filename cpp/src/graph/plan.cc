#include "graph/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "graph/cut.h"
#include "graph/ends.h"
#include "graph/precedence.h"

namespace corro::graph {
namespace {

__extension__ using Wide = __int128;  // Products of two 64-bit quantities.

/// Finds a cycle of edges without a token in sum. Where lags make edges with less than none, nodes
/// are first put as many steps ahead as makes all edges have none or more (a shortest path);
/// that changes no cycle's sum, so that a depth-first search over edges without tokens finds it.
class CycleSearch {
 public:
  explicit CycleSearch(const Plan& plan)
      : graph_(precedence_of(plan)),
        ahead_(graph_.services.size()),
        via_(graph_.services.size()),
        next_(graph_.services.size()),
        state_(graph_.services.size(), State::kNew) {}

  std::vector<ServiceId> run() {
    find();
    std::vector<ServiceId> services;
    for (const size_t node : cycle_) services.push_back(graph_.services[node]);
    services.erase(std::unique(services.begin(), services.end()), services.end());
    if (services.size() > 1 && services.front() == services.back()) services.pop_back();
    return services;
  }

 private:
  enum class State : uint8_t { kNew, kOnPath, kDone };
  struct Frame {
    size_t node;
    size_t edge;
  };

  void find() {
    if (const Edge* edge = put_ahead(); edge != nullptr) return keep_cycle_through(edge);
    for (const Edge& edge : graph_.edges) {
      if (ahead_[edge.from] + edge.tokens == ahead_[edge.to]) next_[edge.from].push_back(edge.to);
    }
    for (size_t node = 0; node < next_.size(); ++node) {
      if (state_[node] == State::kNew && visit(node)) return;
    }
  }

  /// Bellman-Ford. Returns an edge behind a cycle with less than no token, or null.
  const Edge* put_ahead() {
    const Edge* improved = nullptr;
    for (size_t round = 0; round <= ahead_.size(); ++round) {
      improved = nullptr;
      for (const Edge& edge : graph_.edges) {
        if (ahead_[edge.from] + edge.tokens >= ahead_[edge.to]) continue;
        ahead_[edge.to] = ahead_[edge.from] + edge.tokens;
        improved = via_[edge.to] = &edge;
      }
      if (improved == nullptr) return nullptr;
    }
    return improved;
  }

  void keep_cycle_through(const Edge* edge) {
    for (size_t i = 0; i < via_.size(); ++i) edge = via_[edge->from];  // Now surely on the cycle.
    const Edge* const first = edge;
    do {
      cycle_.push_back(edge->to);
      edge = via_[edge->from];
    } while (edge != first);
    std::reverse(cycle_.begin(), cycle_.end());
  }

  bool visit(size_t root) {
    std::vector<Frame> path{{root, 0}};
    state_[root] = State::kOnPath;
    while (!path.empty()) {
      Frame& top = path.back();
      if (top.edge == next_[top.node].size()) {
        state_[top.node] = State::kDone;
        path.pop_back();
        continue;
      }
      const size_t to = next_[top.node][top.edge++];
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

  void keep_cycle(const std::vector<Frame>& path, size_t first) {
    auto from = std::find_if(path.begin(), path.end(),
                             [first](const Frame& frame) { return frame.node == first; });
    for (; from != path.end(); ++from) cycle_.push_back(from->node);
  }

  Precedence graph_;
  std::vector<int64_t> ahead_;    ///< By node.
  std::vector<const Edge*> via_;  ///< By node: the edge that has last changed `ahead_`.
  std::vector<std::vector<size_t>> next_;
  std::vector<State> state_;
  std::vector<size_t> cycle_;  ///< Nodes.
};

void write_numbers(ByteWriter& writer, const std::vector<uint32_t>& numbers) {
  writer.write(static_cast<uint32_t>(numbers.size()));
  for (const uint32_t number : numbers) writer.write(number);
}

void write_operation(ByteWriter& writer, const OperationSpec& operation) {
  writer.write(static_cast<uint8_t>(operation.kind));
  writer.write(static_cast<uint8_t>(operation.dtype));
  writer.write(operation.count);
  writer.write(static_cast<uint8_t>(operation.reduce_op));
  writer.write(operation.root);
}

void write_copy(ByteWriter& writer, const CopySpec& copy) {
  writer.write(static_cast<uint8_t>(copy.kind));
  writer.write_string(copy.path);
  writer.write(copy.offset);
  writer.write(copy.stride);
  writer.write(copy.count);
}

void write_service(ByteWriter& writer, const ServiceSpec& service) {
  writer.write_string(service.name);
  writer.write(service.lane);
  writer.write(service.priority);
  writer.write(service.lag);
  writer.write(service.every);
  writer.write(service.duration.count());
  write_numbers(writer, service.inputs);
  write_numbers(writer, service.outputs);
  writer.write(static_cast<uint8_t>(service.operation.has_value()));
  if (service.operation) write_operation(writer, *service.operation);
  writer.write(static_cast<uint8_t>(service.copy.has_value()));
  if (service.copy) write_copy(writer, *service.copy);
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
    const bool lags =
        std::ranges::any_of(cycle, [&whole](ServiceId id) { return whole.services[id].lag > 0; });
    return {Code::kFailedPrecondition,
            "plan: would stand still, each waits for the next: " + names +
                "; give a channel on this cycle a slot or an initial token, or change the order of "
                "its lane" +
                (lags ? ", or its lags" : "")};
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

uint32_t step_of(const Plan& plan) {
  uint32_t step = 1;
  for (const ServiceSpec& service : plan.services) step = std::max(step, service.every);
  return step;
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

}  // namespace corro::graph
