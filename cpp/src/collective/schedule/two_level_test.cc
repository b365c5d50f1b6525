// Two-level schedules for hosts of many shapes: right, in the order that the topology says, with no
// byte too many between hosts, and without pauses.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "collective/schedule/host_steps.h"
#include "testing/simulation/whole_groups.h"

namespace corro::collective {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kReducescatter, OpKind::kAllgather,
                             OpKind::kAlltoall,  OpKind::kBroadcast,     OpKind::kReduce,
                             OpKind::kBarrier};

/// Hosts by rank: 2 x 2, 2 x 4, 4 x 2, 3 + 1, 1 + 2 + 3, dealt round-robin, in no order.
const std::vector<std::vector<int32_t>> kShapes = {
    {0, 0, 1, 1},          {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3},
    {0, 0, 0, 1},          {0, 1, 1, 2, 2, 2},       {0, 1, 0, 1},
    {0, 1, 2, 0, 1, 2, 0}, {2, 0, 0, 1, 0, 1, 1, 2}, {0, 1, 1}};

std::vector<int32_t> random_hosts(std::mt19937_64& random) {
  while (true) {
    std::vector<int32_t> hosts(3 + random() % 14);
    const uint64_t count = 2 + random() % 4;
    for (int32_t& host : hosts) host = static_cast<int32_t>(random() % count);
    if (Topology(hosts).two_levels()) return hosts;
  }
}

bool has_uneven(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kReducescatter;
}

void expect_right_on(const Topology& topology, OpKind kind, std::mt19937_64& random) {
  Problem problem = random_problem(kind, topology.size(), 60, random);
  problem.topology = &topology;
  Group group = has_uneven(kind) && random() % 2 == 0 ? uneven_group(problem, 9, random)
                                                      : even_group(problem);
  choose_in_place(group, random);
  expect_right(group, Algorithm::kTwoLevel, random, 4);
}

TEST(TwoLevel, IsRightForEveryShape) {
  std::mt19937_64 random(1);
  for (const auto& hosts : kShapes) {
    const Topology topology(hosts);
    for (const OpKind kind : kKinds) {
      for (int i = 0; i < (kSanitized ? 10 : 60); ++i)
        ASSERT_NO_FATAL_FAILURE(expect_right_on(topology, kind, random));
    }
  }
}

TEST(TwoLevel, IsRightForRandomHosts) {
  std::mt19937_64 random(2);
  for (int i = 0; i < (kSanitized ? 30 : 300); ++i) {
    const Topology topology(random_hosts(random));
    for (const OpKind kind : kKinds)
      ASSERT_NO_FATAL_FAILURE(expect_right_on(topology, kind, random));
  }
}

TEST(TwoLevel, LeavesLittleToFewerRanks) {
  std::mt19937_64 random(3);
  const auto senders = [](const Topology& topology, uint64_t count) {
    const Problem problem{.kind = OpKind::kAllreduce,
                          .size = topology.size(),
                          .count = count,
                          .chunk_count = 640,
                          .topology = &topology};
    int found = 0;
    for (const Schedule& schedule :
         generate_all(even_group(problem).problems, Algorithm::kTwoLevel)) {
      found += std::any_of(schedule.steps.begin(), schedule.steps.end(),
                           [](const Step& step) { return step.kind == StepKind::kSend; })
                   ? 1
                   : 0;
    }
    return found;
  };
  const Topology topology(kShapes[1]);
  EXPECT_EQ(senders(topology, 1), 2);
  EXPECT_EQ(senders(topology, 38), 2) << "homes of 19 elements";
  EXPECT_EQ(senders(topology, 40), 4);
  EXPECT_EQ(senders(topology, 80), 8);
  for (const OpKind kind : kKinds) {
    Problem problem = random_problem(kind, topology.size(), 60, random);
    problem.chunk_count = 640;
    problem.topology = &topology;
    expect_right(even_group(problem), Algorithm::kTwoLevel, random, 4);
  }
}

TEST(TwoLevel, NeedsSeveralHostsAndSeveralRanksOnOne) {
  const auto supported = [](std::vector<int32_t> hosts) {
    const Topology topology(hosts);
    return supports(Algorithm::kTwoLevel,
                    {.kind = OpKind::kAllreduce, .size = topology.size(), .topology = &topology});
  };
  EXPECT_TRUE(supported({0, 0, 1}));
  EXPECT_FALSE(supported({0, 0, 0}));
  EXPECT_FALSE(supported({0, 1, 2}));
  EXPECT_FALSE(supports(Algorithm::kTwoLevel, {.kind = OpKind::kAllreduce, .size = 3}));
}

/// Elements that enter or leave a host, in the direction that has more of them.
uint64_t busiest_link(const std::vector<Schedule>& schedules, const Topology& topology) {
  const auto hosts = static_cast<size_t>(topology.hosts());
  std::vector<uint64_t> in(hosts), out(hosts);
  for (size_t r = 0; r < schedules.size(); ++r) {
    const auto from = static_cast<size_t>(topology.host_of(static_cast<int32_t>(r)));
    for (const Step& step : schedules[r].steps) {
      if (step.kind != StepKind::kSend) continue;
      const auto to = static_cast<size_t>(topology.host_of(step.peer));
      EXPECT_NE(from, to) << "a message inside a host";
      out[from] += step.from.count;
      in[to] += step.from.count;
    }
  }
  return std::max(*std::max_element(in.begin(), in.end()),
                  *std::max_element(out.begin(), out.end()));
}

/// What has to cross the busiest host's link, in elements.
uint64_t least_possible(const Problem& problem) {
  const Topology& topology = *problem.topology;
  const auto hosts = static_cast<uint64_t>(topology.hosts());
  uint64_t most = 0;
  for (int32_t host = 0; host < topology.hosts(); ++host) {
    const auto ranks = static_cast<uint64_t>(topology.size_of(host));
    const uint64_t others = static_cast<uint64_t>(topology.size()) - ranks;
    switch (problem.kind) {
      case OpKind::kAllreduce:
        most = 2 * (hosts - 1) * problem.count / hosts;
        break;
      case OpKind::kReducescatter:
      case OpKind::kAllgather:
        most = std::max({most, others * problem.count, (hosts - 1) * ranks * problem.count});
        break;
      case OpKind::kAlltoall:
        most = std::max(most, ranks * others * problem.count);
        break;
      case OpKind::kBroadcast:
      case OpKind::kReduce:
        most = problem.count;
        break;
      default:
        break;
    }
  }
  return most;
}

TEST(TwoLevel, SendsNoMoreOverTheBusiestLinkThanHasTo) {
  for (const auto& hosts : kShapes) {
    const Topology topology(hosts);
    for (const OpKind kind : kKinds) {
      const Problem problem{.kind = kind,
                            .size = topology.size(),
                            .root = 1,
                            .count = kind == OpKind::kBarrier ? 0U : 2400U,
                            .chunk_count = 480,
                            .topology = &topology};
      const auto schedules = generate_all(even_group(problem).problems, Algorithm::kTwoLevel);
      EXPECT_EQ(busiest_link(schedules, topology), least_possible(problem))
          << name_of(kind) << " on " << topology.hosts() << " hosts";
    }
  }
}

TEST(TwoLevel, KeepsTheLinksBusy) {
  const LinkModels links{.same_host = {},
                         .other_host = {.latency_us = 30, .overhead_us = 2, .us_per_byte = 8e-3}};
  for (const auto& hosts : kShapes) {
    const Topology topology(hosts);
    for (const OpKind kind : kKinds) {
      if (kind == OpKind::kBarrier) continue;
      const bool blocks =
          kind == OpKind::kAllgather || kind == OpKind::kReducescatter || kind == OpKind::kAlltoall;
      const auto size = static_cast<uint64_t>(topology.size());
      const Problem problem{.kind = kind,
                            .size = topology.size(),
                            .count = (uint64_t{16} << 20U) / (blocks ? size : 1) / 4,
                            .chunk_count = kPipelineChunkBytes / 4,
                            .topology = &topology};
      const double time = simulated_time_us(
          generate_all(even_group(problem).problems, Algorithm::kTwoLevel), 4, links, &topology);
      const double bound = static_cast<double>(least_possible(problem)) * 4 * 8e-3;
      EXPECT_GE(bound / time, 0.93) << name_of(kind) << " on " << topology.hosts() << " hosts of "
                                    << topology.size() << " ranks";
    }
  }
}

TEST(TwoLevel, BoundsItsStrandsAndStage) {
  const Topology topology(kShapes[1]);
  for (const OpKind kind : kKinds) {
    const Problem problem{.kind = kind,
                          .size = 8,
                          .count = kind == OpKind::kBarrier ? 0U : 1'000'000U,
                          .chunk_count = 65536,
                          .topology = &topology};
    const Schedule schedule = generate(problem, Algorithm::kTwoLevel);
    EXPECT_LE(schedule.strands, 1024U);
    EXPECT_LE(schedule.stage_count, kHostWindow * 65536U) << name_of(kind);
  }
}

}  // namespace
}  // namespace corro::collective
