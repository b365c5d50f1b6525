#include "plan/cost/layer_cost.h"

#include <gtest/gtest.h>

#include "plan/cost/runs.h"
#include "plan/model/transformer.h"

namespace corro::plan {
namespace {

constexpr double kSequence = 1024;
constexpr double kHidden = 2048;
constexpr double kHeads = 16;

const LayerType& block() {
  static const Model kModel = make_transformer(
      {.layers = 2, .hidden = 2048, .heads = 16, .vocabulary = 50000, .sequence = 1024});
  return kModel.types[1];
}

LayerCost cost_of(const LayerCut& cut, const Machine& machine = default_machine()) {
  const auto cost = cost_of_layer(block(), kSequence * kHidden, cut, machine);
  EXPECT_TRUE(cost.has_value());
  return *cost;
}

TEST(Span, RanksFillHostsOneAfterTheOther) {
  const GroupSpan tensor = span_of(8, 1, 8);
  EXPECT_TRUE(tensor.inside_host());
  const GroupSpan data = span_of(32, 2, 8);
  EXPECT_EQ(data.per_host, 4U);
  EXPECT_EQ(data.sharers, 2U);
  const GroupSpan far = span_of(4, 16, 8);
  EXPECT_EQ(far.per_host, 1U);
  EXPECT_EQ(far.sharers, 8U);
}

TEST(Traffic, ARingSendsItsBytesTwiceOverItsNarrowestLink) {
  Machine machine = default_machine();
  machine.calibration = {.link_efficiency = 1, .network_efficiency = 1, .collective_seconds = 0};
  const Traffic traffic(machine.host, machine.between_hosts, machine.calibration);
  EXPECT_DOUBLE_EQ(traffic.allreduce(300e9, span_of(8, 1, 8)), 2 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(traffic.allreduce(100e9, span_of(2, 8, 8)), 8.0);  // Eight share the network.
  EXPECT_DOUBLE_EQ(traffic.allreduce(1, span_of(1, 1, 8)), 0);
}

// Korthikanti et al., 2022, §4.1 and §4.2.2, equations 1, 2 and 4.
TEST(LayerCost, KeepsWhatKorthikantiCounts) {
  const double token = kSequence * kHidden;
  const double scores = 5 * kHeads * kSequence * kSequence;
  EXPECT_DOUBLE_EQ(cost_of({}).kept[0], 34 * token + scores);
  for (const double t : {2.0, 4.0, 8.0}) {
    LayerCut cut{.tensor = static_cast<uint32_t>(t), .host_devices = 8};
    EXPECT_DOUBLE_EQ(cost_of(cut).kept[0], (10 + 24 / t) * token + scores / t);
    cut.sequence_parallel = true;
    EXPECT_DOUBLE_EQ(cost_of(cut).kept[0], 34 / t * token + scores / t);
    EXPECT_DOUBLE_EQ(cost_of(cut).kept[1], 34 / t * token);  // Without the scores.
  }
}

TEST(LayerCost, TakesWhatAProfileHasMeasured) {
  Machine machine = default_machine();
  machine.profile = std::make_shared<const Profile>(
      Profile{.dtype = DType::kBF16, .layers = {{block().name, {{1, 0.5, 0.75}, {4, 1.5, 3.75}}}}});
  LayerCut cut{.micro_batch = 2, .host_devices = 8};
  LayerCost cost = cost_of(cut, machine);
  EXPECT_DOUBLE_EQ(cost.forward, 0.5 + 1.0 / 3);
  EXPECT_DOUBLE_EQ(cost.backward, 1.75);
  EXPECT_DOUBLE_EQ(cost.recompute[static_cast<size_t>(Recompute::kFull)], cost.forward);
  EXPECT_EQ(cost.kept, cost_of(cut).kept);
  // Cut in two, its matrix products take half, and what is not cut takes what it took.
  cut.tensor = 2;
  cost = cost_of(cut, machine);
  EXPECT_GT(cost.forward - cost.forward_traffic, (0.5 + 1.0 / 3) / 2);
  EXPECT_LT(cost.forward - cost.forward_traffic, (0.5 + 1.0 / 3) * 0.7);
  // A profile of another dtype says nothing.
  cut.dtype = DType::kF16;
  EXPECT_EQ(cost_of(cut, machine).forward, cost_of(cut).forward);
}

TEST(LayerCost, FindsMegatronsTwoAllreducesEachWay) {
  Machine machine = default_machine();
  machine.calibration.operator_seconds = 0;
  const Traffic traffic(machine.host, machine.between_hosts, machine.calibration);
  LayerCut cut{.tensor = 4, .micro_batch = 2, .host_devices = 8};
  const double one = traffic.allreduce(2 * kSequence * kHidden * 2, span_of(4, 1, 8));
  EXPECT_NEAR(cost_of(cut, machine).forward_traffic, 2 * one, 1e-12);
  EXPECT_NEAR(cost_of(cut, machine).backward_traffic, 2 * one, 1e-12);
  cut.sequence_parallel = true;  // As many bytes, half gathered and half scattered.
  EXPECT_NEAR(cost_of(cut, machine).forward_traffic, 2 * one, 1e-12);
  EXPECT_NEAR(cost_of(cut, machine).backward_traffic, 2 * one, 1e-12);
}

TEST(LayerCost, CutsParametersAndTime) {
  const LayerCost whole = cost_of({.micro_batch = 8});
  const LayerCost half = cost_of({.tensor = 2, .micro_batch = 8, .host_devices = 8});
  EXPECT_NEAR(whole.parameters, 12 * kHidden * kHidden + 13 * kHidden, 1);
  EXPECT_LT(half.parameters, 0.51 * whole.parameters);
  EXPECT_LT(half.forward, whole.forward);
  EXPECT_GT(half.forward, whole.forward / 2);
}

TEST(LayerCost, SharesOneSumOfGradientsAmongReadersOfANorm) {
  // As recorded modules have it: three projections read one norm.
  LayerType type{.name = "split"};
  const double tokens = 1024 * 64;
  type.operators.push_back({.name = "norm",
                            .kind = OperatorKind::kNorm,
                            .inputs = {Operator::kLayerInput},
                            .output = tokens});
  for (const char* name : {"q", "k", "v"}) {
    type.operators.push_back({.name = name,
                              .kind = OperatorKind::kMatmul,
                              .inputs = {0},
                              .flops = 2 * tokens * 64,
                              .output = tokens,
                              .parameters = 4096,
                              .most_ways = 64});
  }
  type.operators.push_back({.name = "attention",
                            .kind = OperatorKind::kAttention,
                            .inputs = {1, 2, 3},
                            .output = tokens,
                            .most_ways = 64});
  type.operators.push_back({.name = "out",
                            .kind = OperatorKind::kMatmul,
                            .inputs = {4},
                            .output = tokens,
                            .parameters = 4096,
                            .most_ways = 64});
  const Machine machine = default_machine();
  const Traffic traffic(machine.host, machine.between_hosts, machine.calibration);
  const auto cost = cost_of_layer(type, tokens, {.tensor = 2, .host_devices = 8}, machine);
  ASSERT_TRUE(cost.has_value());
  EXPECT_NEAR(cost->backward_traffic, traffic.allreduce(2 * tokens, span_of(2, 1, 8)), 1e-12);
}

TEST(LayerCost, RefusesWhatCannotBe) {
  const Machine machine = default_machine();
  EXPECT_FALSE(cost_of_layer(block(), 1, {.dtype = DType::kI32}, machine).has_value());
  LayerType experts = block();
  experts.experts = 8;
  EXPECT_FALSE(cost_of_layer(experts, 1, {.expert = 3}, machine).has_value());
}

TEST(LayerCost, ContextParallelismCutsTheSequence) {
  const LayerCost whole = cost_of({.micro_batch = 8});
  const LayerCost half = cost_of({.context = 2, .micro_batch = 8, .host_devices = 8});
  EXPECT_DOUBLE_EQ(half.kept[0], whole.kept[0] / 2);
  EXPECT_DOUBLE_EQ(half.parameters, whole.parameters);
  EXPECT_LT(half.forward, whole.forward);
}

}  // namespace
}  // namespace corro::plan
