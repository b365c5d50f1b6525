// Tensor parallelism as a search for layouts. Each operator has strategies: a layout that it reads,
// one that it writes, its share of the work. Between a layout written and one wanted stands a
// conversion, which costs one collective forward and its transpose backward. Of all combinations
// the cheapest is found by elimination (plan/solve); for a transformer's block it is Megatron's
// (Shoeybi et al. 2019: columns, then rows), with sequence parallelism Korthikanti's (2022, §4.2).
//
// An operator with parameters or heads that can be cut always is: leaving it whole would cost
// memory that a plan with fewer tensor-parallel ranks does not need.
#include "plan/cost/layer_cost.h"

#include <algorithm>
#include <cmath>

#include "plan/solve/elimination.h"

namespace corro::plan {
namespace {

/// Seconds forward and backward.
struct Seconds {
  double forward = 0;
  double backward = 0;
  [[nodiscard]] double sum() const { return forward + backward; }
  Seconds& operator+=(const Seconds& other) {
    forward += other.forward;
    backward += other.backward;
    return *this;
  }
};

struct Strategy {
  Layout in = Layout::kReplicated;
  Layout out = Layout::kReplicated;
  double share = 1;  ///< Of its work, parameters and what it keeps.
  Seconds compute = {};
  Seconds traffic = {};  ///< Exchanges that belong to it alone.
};

using Conversions = std::vector<std::vector<Seconds>>;

class LayerCoster {
 public:
  LayerCoster(const LayerType& type, double input, const LayerCut& cut, const Machine& machine)
      : type_(type),
        input_(input),
        cut_(cut),
        machine_(machine),
        traffic_(machine.host, machine.between_hosts, machine.calibration),
        tensor_(
            placed_along(GroupAxis::kTensor, span_of(cut.tensor, 1, cut.host_devices), machine)),
        element_(static_cast<double>(size_of(cut.dtype))),
        samples_(cut.micro_batch / cut.context),
        flops_(machine.device.peak[static_cast<size_t>(cut.dtype)] *
               machine.calibration.matmul_efficiency),
        bandwidth_(machine.device.memory_bandwidth * machine.calibration.memory_efficiency) {}

  std::optional<LayerCost> cost() {
    if (!can_be_cut()) return std::nullopt;
    for (const Operator& op : type_.operators) strategies_.push_back(strategies_of(op));
    const auto chosen = choose();
    if (!chosen) return std::nullopt;
    return sum_up(*chosen);
  }

 private:
  [[nodiscard]] Layout boundary() const {
    return cut_.sequence_parallel ? Layout::kSequence : Layout::kReplicated;
  }
  [[nodiscard]] bool can_be_cut() const {
    if (!(flops_ > 0) || !(bandwidth_ > 0)) return false;
    if (cut_.expert > 1 && (type_.experts == 0 || type_.experts % cut_.expert != 0)) {
      return type_.experts == 0;  // Layers without experts do not mind.
    }
    return true;
  }
  [[nodiscard]] bool is_cut(const Operator& op) const {
    switch (op.kind) {
      case OperatorKind::kMatmul:
      case OperatorKind::kAttention:
      case OperatorKind::kEmbedding:
      case OperatorKind::kLoss:
      case OperatorKind::kExperts:
        return cut_.tensor > 1 && op.most_ways >= cut_.tensor;
      default:
        return false;
    }
  }
  /// Uneven cuts are as slow as their largest part.
  [[nodiscard]] double share_of(const Operator& op) const {
    const uint32_t largest = (op.most_ways + cut_.tensor - 1) / cut_.tensor;
    return static_cast<double>(largest) / op.most_ways;
  }
  [[nodiscard]] double parameters_of(const Operator& op) const {
    const double experts = op.kind == OperatorKind::kExperts ? cut_.expert : 1;
    return static_cast<double>(op.parameters) / experts;
  }

  /// Forward alone; backward is twice that: gradients of the input and of the parameters.
  [[nodiscard]] Seconds compute(const Operator& op, double share, double traffic) const {
    const double work = op.flops * samples_ * share / flops_;
    const double moved = (traffic * samples_ + parameters_of(op) * share) * element_ / bandwidth_;
    return {work + moved, 2 * (work + moved)};
  }
  [[nodiscard]] double bytes(double elements) const { return elements * samples_ * element_; }

  std::vector<Strategy> strategies_of(const Operator& op) const;
  [[nodiscard]] Strategy whole(const Operator& op) const {
    return {.compute = compute(op, 1, op.traffic)};
  }
  void add_cut_ones(const Operator& op, std::vector<Strategy>& list) const;
  [[nodiscard]] Seconds convert(Layout from, Layout to, double elements) const;
  std::optional<std::vector<uint32_t>> choose();
  LayerCost sum_up(const std::vector<uint32_t>& chosen) const;
  [[nodiscard]] std::optional<Seconds> measured_over_computed() const;
  void add_exchanges_of_groups(LayerCost& cost, double attention) const;

  const LayerType& type_;
  double input_;
  const LayerCut& cut_;
  const Machine& machine_;
  Traffic traffic_;
  GroupSpan tensor_;
  double element_;
  double samples_;
  double flops_;
  double bandwidth_;
  std::vector<std::vector<Strategy>> strategies_;
  Seconds converted_;  ///< Between the chosen strategies.
};

std::vector<Strategy> LayerCoster::strategies_of(const Operator& op) const {
  std::vector<Strategy> list;
  if (is_cut(op)) {
    add_cut_ones(op, list);
    return list;
  }
  list.push_back(whole(op));
  if (cut_.tensor == 1) return list;
  const bool by_element = op.kind == OperatorKind::kElementwise || op.kind == OperatorKind::kNorm;
  if (by_element || op.kind == OperatorKind::kEmbedding) {
    // One sum of gradients for all who read it, instead of one for each.
    Strategy duplicated = whole(op);
    duplicated.out = Layout::kDuplicated;
    duplicated.traffic = convert(Layout::kReplicated, Layout::kDuplicated, op.output);
    list.push_back(duplicated);
  }
  if (!by_element) return list;
  const double share = 1.0 / cut_.tensor;
  if (op.kind == OperatorKind::kElementwise) {
    list.push_back({.in = Layout::kFeatures,
                    .out = Layout::kFeatures,
                    .share = share,
                    .compute = compute(op, share, op.traffic * share)});
  }
  if (!cut_.sequence_parallel) return list;
  Strategy sequence{.in = Layout::kSequence,
                    .out = Layout::kSequence,
                    .share = share,
                    .compute = compute(op, share, op.traffic * share)};
  list.push_back(sequence);
  sequence.out = Layout::kDuplicated;
  sequence.traffic = convert(Layout::kSequence, Layout::kDuplicated, op.output);
  list.push_back(sequence);
  return list;
}

void LayerCoster::add_cut_ones(const Operator& op, std::vector<Strategy>& list) const {
  const double share = share_of(op);
  const auto add = [&](Layout in, Layout out, double traffic) {
    list.push_back({.in = in, .out = out, .share = share, .compute = compute(op, share, traffic)});
  };
  const double read = std::max(0.0, op.traffic - op.output);
  switch (op.kind) {
    case OperatorKind::kMatmul:
      add(Layout::kDuplicated, Layout::kFeatures, read + op.output * share);
      add(Layout::kFeatures, Layout::kPartial, read * share + op.output);
      break;
    case OperatorKind::kEmbedding:
      add(Layout::kReplicated, Layout::kPartial, op.traffic);
      break;
    case OperatorKind::kExperts:
      add(Layout::kDuplicated, Layout::kPartial, op.traffic * share);
      break;
    default:  // Attention by heads, a loss by the vocabulary.
      add(Layout::kFeatures,
          op.kind == OperatorKind::kLoss ? Layout::kReplicated : Layout::kFeatures,
          op.traffic * share);
  }
}

/// The collective forward, and its transpose backward (planning.md 3a).
Seconds LayerCoster::convert(Layout from, Layout to, double elements) const {
  using enum Layout;
  constexpr double kImpossible = kNever;
  const double all = bytes(elements);
  const double gather = traffic_.allgather(all, tensor_);
  const double reduce = 2 * gather;
  const double exchange = traffic_.alltoall(all / cut_.tensor, tensor_);
  if (cut_.tensor == 1 || from == to)
    return from == kPartial ? Seconds{kImpossible, kImpossible} : Seconds{};
  switch (from) {
    case kReplicated:
      return to == kDuplicated ? Seconds{0, reduce}
             : to == kPartial  ? Seconds{kImpossible, kImpossible}
                               : Seconds{0, gather};
    case kDuplicated:
      return to == kReplicated ? Seconds{} : Seconds{kImpossible, kImpossible};
    case kPartial:
      return to == kReplicated   ? Seconds{reduce, 0}
             : to == kDuplicated ? Seconds{reduce, reduce}
                                 : Seconds{gather, gather};
    case kFeatures:
    case kSequence:
      return to == kReplicated   ? Seconds{gather, 0}
             : to == kDuplicated ? Seconds{gather, gather}
             : to == kPartial    ? Seconds{kImpossible, kImpossible}
                                 : Seconds{exchange, exchange};
  }
  return {kImpossible, kImpossible};
}

/// What the profile says of the whole layer, as a multiple of what the formulas say.
std::optional<Seconds> LayerCoster::measured_over_computed() const {
  const Profile* profile = machine_.profile.get();
  if (profile == nullptr || profile->dtype != cut_.dtype) return std::nullopt;
  const auto measured = profile->find(type_.name, samples_);
  Seconds computed;
  for (const Operator& op : type_.operators) computed += compute(op, 1, op.traffic);
  if (!measured || !(computed.forward > 0)) return std::nullopt;
  return Seconds{measured->forward / computed.forward, measured->backward / computed.backward};
}

/// Node 0 is what comes in, the last one what goes out: both lie as layers hand them on.
std::optional<std::vector<uint32_t>> LayerCoster::choose() {
  EnergyGraph graph;
  std::vector<std::vector<Layout>> written{{boundary()}};
  std::vector<Conversions> conversions;
  graph.add_node({0});
  const auto connect = [&](uint32_t from, NodeId to, const std::vector<Layout>& wanted) {
    const bool outside = from == Operator::kLayerInput;
    const NodeId node = outside ? 0 : from + 1;
    const double elements = outside ? input_ : type_.operators[from].output;
    CostMatrix costs(written[node].size(), wanted.size());
    Conversions table(written[node].size());
    for (size_t i = 0; i < written[node].size(); ++i) {
      for (size_t j = 0; j < wanted.size(); ++j) {
        table[i].push_back(convert(written[node][i], wanted[j], elements));
        costs.at(i, j) = table[i][j].sum();
      }
    }
    graph.add_edge(node, to, std::move(costs));
    conversions.push_back(std::move(table));
  };
  for (size_t v = 0; v < strategies_.size(); ++v) {
    std::vector<double> costs;
    std::vector<Layout> in;
    std::vector<Layout> out;
    for (const Strategy& strategy : strategies_[v]) {
      costs.push_back(strategy.compute.sum() + strategy.traffic.sum());
      in.push_back(strategy.in);
      out.push_back(strategy.out);
    }
    const NodeId node = graph.add_node(std::move(costs));
    written.push_back(std::move(out));
    for (const uint32_t from : type_.operators[v].inputs) connect(from, node, in);
  }
  const NodeId end = graph.add_node({0});
  if (!strategies_.empty()) {
    connect(static_cast<uint32_t>(strategies_.size() - 1), end, {boundary()});
  }
  const auto best = minimise(graph);
  if (!best.ok() || best->value == kNever) return std::nullopt;
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const auto& edge = graph.edges[e];
    converted_ += conversions[e][best->strategies[edge.first]][best->strategies[edge.second]];
  }
  return best->strategies;
}

LayerCost LayerCoster::sum_up(const std::vector<uint32_t>& chosen) const {
  LayerCost cost;
  Seconds compute;
  Seconds exchanged = converted_;
  Seconds attention;
  double kept = 0;
  double kept_of_attention = 0;
  for (size_t v = 0; v < type_.operators.size(); ++v) {
    const Operator& op = type_.operators[v];
    const Strategy& strategy = strategies_[v][chosen[v + 1]];
    compute += strategy.compute;
    exchanged += strategy.traffic;
    (op.kind == OperatorKind::kExperts ? cost.expert_parameters : cost.parameters) +=
        parameters_of(op) * strategy.share;
    // What a group reads whole it need not keep whole, if it can be gathered again.
    const bool gathered = strategy.in == Layout::kDuplicated && !cut_.sequence_parallel;
    const double share = strategy.in == Layout::kReplicated || gathered ? 1 : strategy.share;
    kept += bytes(op.saved) * share;
    cost.layouts.push_back(strategy.out);
    const bool parted = strategy.out == Layout::kFeatures || strategy.out == Layout::kSequence;
    cost.gradient = std::max(cost.gradient, bytes(op.output) / (parted ? cut_.tensor : 1));
    if (op.kind != OperatorKind::kAttention) continue;
    attention += strategy.compute;
    double read = 0;
    for (const uint32_t from : op.inputs) {
      read += from == Operator::kLayerInput ? input_ : type_.operators[from].output;
    }
    const double scores = bytes(std::max(0.0, op.saved - read)) * share;
    cost.gradient =
        std::max(cost.gradient, scores / 2);  // Kept are softmaxed and dropped out ones.
    kept_of_attention += scores;
  }
  cost.forward_traffic = exchanged.forward;
  cost.backward_traffic = exchanged.backward;
  double floor =
      machine_.calibration.operator_seconds * static_cast<double>(type_.operators.size());
  if (const auto factor = measured_over_computed()) {
    compute.forward *= factor->forward;
    compute.backward *= factor->backward;
    attention.forward *= factor->forward;
    floor = 0;  // It is in what was measured.
  }
  add_exchanges_of_groups(cost, attention.forward);
  cost.forward = std::max(compute.forward + cost.forward_traffic, floor);
  cost.backward = std::max(compute.backward + cost.backward_traffic, 2 * floor);
  const double out = type_.operators.empty() ? 0 : type_.operators.back().output;
  const double whole = cut_.sequence_parallel ? cut_.tensor : 1;
  cost.boundary = bytes(out) / whole;
  // What moving to host memory takes is known for a stage alone: step_cost.cc.
  cost.kept = {kept, kept - kept_of_attention, bytes(input_) / whole, 0};
  cost.recompute = {0, attention.forward, cost.forward, 0};
  return cost;
}

/// Experts and parts of the sequence are exchanged among ranks beyond the tensor-parallel group.
void LayerCoster::add_exchanges_of_groups(LayerCost& cost, double attention) const {
  if (cut_.context > 1 && type_.keys_and_values > 0) {
    // A ring of keys and values, hidden behind the attention to those that are here (Liu et al.,
    // "Ring attention", 2023); backward sends their gradients, too.
    const GroupSpan span = placed_along(
        GroupAxis::kContext, span_of(cut_.context, cut_.tensor, cut_.host_devices), machine_);
    const double ring =
        traffic_.allgather(bytes(type_.keys_and_values) * cut_.context / cut_.tensor, span);
    cost.forward_traffic += std::max(0.0, ring - attention);
    cost.backward_traffic += std::max(0.0, 2 * ring - 2 * attention);
  }
  if (cut_.expert > 1 && type_.experts_moved > 0) {
    const GroupSpan span =
        placed_along(GroupAxis::kExpert,
                     span_of(cut_.expert, cut_.tensor * cut_.context, cut_.host_devices), machine_);
    const double moved = bytes(type_.experts_moved) / (cut_.sequence_parallel ? cut_.tensor : 1);
    const double there_and_back = 2 * traffic_.alltoall(moved, span);
    cost.forward_traffic += there_and_back;
    cost.backward_traffic += there_and_back;
  }
}

}  // namespace

std::string_view name_of(Layout layout) {
  constexpr std::string_view kNames[] = {"replicated", "duplicated", "features", "sequence",
                                         "partial"};
  return kNames[static_cast<size_t>(layout)];
}

std::optional<LayerCost> cost_of_layer(const LayerType& type, double input, const LayerCut& cut,
                                       const Machine& machine) {
  return LayerCoster(type, input, cut, machine).cost();
}

}  // namespace corro::plan
