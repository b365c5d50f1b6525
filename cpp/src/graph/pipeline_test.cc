// Pipeline schedules that fall out of credits and priorities alone, in virtual time (the table in
// docs/design/0002).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "graph/executor.h"
#include "graph/virtual_lanes.h"

namespace corro::graph {
namespace {

constexpr Duration kUnit = std::chrono::milliseconds(2);

struct Pipeline {
  std::vector<uint32_t> credits;  ///< Slots of each stage's stash, forward to backward.
  Duration link_delay{};          ///< Each link is a lane of its own, one per direction.
  uint32_t link_slots = 2;        ///< Double buffering between neighbours.
  uint32_t micro_batches = 8;
  Duration forward = kUnit;
  Duration backward = 2 * kUnit;
  bool agreed = false;  ///< Backward follows forward by a lag instead of going first.
};

/// Joins two stages' services: directly, or by a service that takes the link's delay.
ChannelId connect(Plan& plan, const Pipeline& pipeline, const std::string& name,
                  ChannelId& far_end) {
  const ChannelId near_end = plan.add_channel({.name = name, .slots = pipeline.link_slots});
  far_end = near_end;
  if (pipeline.link_delay > Duration::zero()) {
    far_end = plan.add_channel({.name = name + ".arrived", .slots = pipeline.link_slots});
    const LaneId link = plan.add_lane({.name = name + ".link"});
    plan.add_service({.name = name + ".send",
                      .lane = link,
                      .duration = pipeline.link_delay,
                      .inputs = {near_end},
                      .outputs = {far_end}});
  }
  return near_end;
}

Plan plan_of(const Pipeline& pipeline) {
  Plan plan;
  const size_t stages = pipeline.credits.size();
  std::vector<ServiceSpec> forward(stages);
  std::vector<ServiceSpec> backward(stages);
  for (size_t i = 0; i < stages; ++i) {
    const LaneId lane =
        plan.add_lane({.name = fmt::format("stage{}", i),
                       .order = pipeline.agreed ? LaneOrder::kAgreed : LaneOrder::kPriority});
    const ChannelId stash =
        plan.add_channel({.name = fmt::format("stash{}", i), .slots = pipeline.credits[i]});
    forward[i] = {.name = fmt::format("F{}", i),
                  .lane = lane,
                  .priority = 1,
                  .duration = pipeline.forward,
                  .outputs = {stash}};
    backward[i] = {.name = fmt::format("B{}", i),
                   .lane = lane,
                   .priority = 0,
                   .lag = pipeline.agreed ? pipeline.credits[i] - 1 : 0,
                   .duration = pipeline.backward,
                   .inputs = {stash}};
  }
  for (size_t i = 0; i + 1 < stages; ++i) {
    ChannelId arrived = 0;
    forward[i].outputs.push_back(connect(plan, pipeline, fmt::format("activation{}", i), arrived));
    forward[i + 1].inputs.push_back(arrived);
    backward[i + 1].outputs.push_back(
        connect(plan, pipeline, fmt::format("gradient{}", i), arrived));
    backward[i].inputs.push_back(arrived);
  }
  for (size_t i = 0; i < stages; ++i) {
    plan.add_service(forward[i]);
    plan.add_service(backward[i]);
  }
  return plan;
}

struct Outcome {
  double step = 0;                           ///< In units of one forward.
  std::map<std::string, std::string> trace;  ///< Lane -> the order of its firings, "F0 F1 B0 ...".
};

Outcome run(const Pipeline& pipeline, uint64_t seed = 0) {
  const Plan plan = plan_of(pipeline);
  Outcome result;
  std::vector<VirtualFiring> seen;
  VirtualLanes lanes(
      plan, {.seed = seed, .observer = [&seen](const auto& firing) { seen.push_back(firing); }});
  auto executor = Executor::create(plan, lanes.lanes());
  EXPECT_TRUE(executor.ok()) << executor.status().to_string();
  (*executor)->run_until(pipeline.micro_batches);
  const Time end = lanes.run(**executor);
  EXPECT_TRUE((*executor)->reached()) << (*executor)->describe_waiting();
  result.step = static_cast<double>(end.since_start.count()) / static_cast<double>(kUnit.count());
  for (const VirtualFiring& firing : seen) {
    if (firing.name.size() > 3) continue;  // Links.
    std::string& order = result.trace[std::string(firing.name.substr(1))];
    order += fmt::format("{}{} ", firing.name[0], firing.generation.micro);
  }
  return result;
}

TEST(Pipeline, CreditsOfOneForwardOneBackwardGiveItsStepTime) {
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}}).step, 33) << "(m + p - 1)(F + B)";
}

TEST(Pipeline, CreditsOfOneForwardOneBackwardGiveItsOrder) {
  const Outcome result = run({.credits = {4, 3, 2, 1}});
  EXPECT_EQ(result.trace.at("0"), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 ");
  EXPECT_EQ(result.trace.at("3"), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ");
}

TEST(Pipeline, CreditsForAllMicroBatchesTakeTheSameTime) {
  EXPECT_EQ(run({.credits = {8, 8, 8, 8}}).step, 33);
}

TEST(Pipeline, FewerCreditsTradeTimeForMemory) {
  EXPECT_EQ(run({.credits = {3, 3, 2, 1}}).step, 39);
  EXPECT_EQ(run({.credits = {2, 2, 2, 1}}).step, 51);
  EXPECT_EQ(run({.credits = {1, 1, 1, 1}}).step, 96);
}

TEST(Pipeline, LinkDelayIsExposedByPlainCreditsAndHiddenByMore) {
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .link_delay = kUnit / 2}).step, 41);
  EXPECT_EQ(run({.credits = {7, 5, 3, 1}, .link_delay = kUnit / 2}).step, 36);
}

TEST(Pipeline, ALagOfTheCreditsGivesTheSameTimesInOneOrder) {
  const Outcome result = run({.credits = {4, 3, 2, 1}, .agreed = true});
  EXPECT_EQ(result.step, 33);
  EXPECT_EQ(result.trace, run({.credits = {4, 3, 2, 1}}).trace);
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .link_delay = kUnit / 2, .agreed = true}).step, 41);
  EXPECT_EQ(run({.credits = {7, 5, 3, 1}, .link_delay = kUnit / 2, .agreed = true}).step, 36);
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .link_slots = 1, .agreed = true}).step, 40);
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .micro_batches = 2, .agreed = true}).step, 15)
      << "fewer micro-batches than the lag";
}

TEST(Pipeline, LinkBuffersBeyondTwoChangeNothingAndOneCosts) {
  for (const uint32_t slots : {2U, 3U, 8U}) {
    EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .link_slots = slots}).step, 33);
    EXPECT_EQ(run({.credits = {7, 5, 3, 1}, .link_delay = kUnit / 2, .link_slots = slots}).step,
              36);
  }
  // A single gradient buffer is held until the receiver's backward is over, so the sender's cannot
  // begin.
  EXPECT_EQ(run({.credits = {4, 3, 2, 1}, .link_slots = 1}).step, 40);
}

TEST(Pipeline, OrderOfSimultaneousCompletionsChangesNothing) {
  const Pipeline pipeline{.credits = {7, 5, 3, 1}, .link_delay = kUnit / 2};
  const Outcome first = run(pipeline, 0);
  for (uint64_t seed = 1; seed < 50; ++seed) {
    const Outcome other = run(pipeline, seed);
    EXPECT_EQ(other.step, first.step) << seed;
    EXPECT_EQ(other.trace, first.trace) << seed;
  }
}

/// Two model chunks on each of two lanes: services in the order of the model, chunk c of stage i on
/// lane i.
Plan interleaved(uint32_t stages, uint32_t chunks, uint32_t slots) {
  Plan plan;
  for (uint32_t i = 0; i < stages; ++i) plan.add_lane({.name = fmt::format("stage{}", i)});
  const uint32_t cells = stages * chunks;
  ChannelId activation = 0;
  std::vector<ServiceSpec> backward(cells);
  for (uint32_t cell = 0; cell < cells; ++cell) {
    const ChannelId stash =
        plan.add_channel({.name = fmt::format("stash{}", cell), .slots = slots});
    ServiceSpec forward{.name = fmt::format("F{}", cell),
                        .lane = cell % stages,
                        .priority = static_cast<int32_t>(cells + cells - cell),
                        .duration = kUnit / chunks,
                        .outputs = {stash}};
    backward[cell] = {.name = fmt::format("B{}", cell),
                      .lane = cell % stages,
                      .priority = static_cast<int32_t>(cell),
                      .duration = 2 * kUnit / chunks,
                      .inputs = {stash}};
    if (cell > 0) {
      forward.inputs.push_back(activation);
      const ChannelId gradient =
          plan.add_channel({.name = fmt::format("gradient{}", cell), .slots = slots});
      backward[cell].outputs.push_back(gradient);
      backward[cell - 1].inputs.push_back(gradient);
    }
    if (cell + 1 < cells) {
      activation = plan.add_channel({.name = fmt::format("activation{}", cell), .slots = slots});
      forward.outputs.push_back(activation);
    }
    plan.add_service(forward);
  }
  for (const ServiceSpec& service : backward) plan.add_service(service);
  return plan;
}

double step_of(const Plan& plan, uint32_t micro_batches) {
  VirtualLanes lanes(plan);
  auto executor = Executor::create(plan, lanes.lanes());
  EXPECT_TRUE(executor.ok()) << executor.status().to_string();
  (*executor)->run_until(micro_batches);
  const Time end = lanes.run(**executor);
  EXPECT_TRUE((*executor)->reached()) << (*executor)->describe_waiting();
  return static_cast<double>(end.since_start.count()) / static_cast<double>(kUnit.count());
}

TEST(Pipeline, InterleavingTwoPairsOnALaneShrinksTheBubble) {
  const double plain = step_of(interleaved(4, 1, 8), 8);
  const double twice = step_of(interleaved(4, 2, 8), 8);
  EXPECT_EQ(plain, 33);
  EXPECT_LT(twice, plain);
  EXPECT_GE(twice, 8 * 3 + (4 - 1) * 3 / 2.0)
      << "m(F+B) + (p-1)(F+B)/chunks, Narayanan et al. 2021, 2.2.2";
}

}  // namespace
}  // namespace corro::graph
