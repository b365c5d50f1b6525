// The closed forms against the timed simulation, what they and rules choose, and the table as text
// and bytes.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collective/schedule/selection.h"
#include "testing/simulation/simulate.h"

namespace corro::collective {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr uint64_t kElementBytes = 4;

double simulated(Problem problem, Algorithm algorithm, const LinkModel& link) {
  std::vector<Problem> problems;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) problems.push_back(problem);
  return simulated_time_us(generate_all(problems, algorithm), kElementBytes, {link, link});
}

double modelled(const Problem& problem, Algorithm algorithm, const LinkModel& link) {
  return modelled_costs_us(problem, kElementBytes, {link, link})[static_cast<size_t>(algorithm)];
}

std::string describe(const Problem& problem, Algorithm algorithm) {
  return std::string(name_of(problem.kind)) + " " + std::string(name_of(algorithm)) +
         " size=" + std::to_string(problem.size) + " count=" + std::to_string(problem.count);
}

/// Calls check(problem, algorithm) for every kind, algorithm, and some sizes and counts.
template <typename Check>
void for_each_problem(std::initializer_list<uint64_t> counts, const Check& check) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kBarrier); ++kind) {
    for (int algorithm = 0; algorithm < kAlgorithmCount; ++algorithm) {
      for (const int32_t size : {2, 3, 4, 8, 13, 16, 32}) {
        for (const uint64_t count : counts) {
          const Problem problem{.kind = static_cast<OpKind>(kind), .size = size, .count = count};
          if (!supports(static_cast<Algorithm>(algorithm), problem)) continue;
          check(problem, static_cast<Algorithm>(algorithm));
        }
      }
    }
  }
}

TEST(ModelledCost, AgreesWithTheSimulationWhereBytesDecide) {
  // The simulated link copies for nothing; a slow one makes the model's copies nothing, too.
  const LinkModel link{.latency_us = 20, .overhead_us = 0.1, .us_per_byte = 0.1};
  for_each_problem({1000, 20000}, [&](const Problem& problem, Algorithm algorithm) {
    const double model = modelled(problem, algorithm, link);
    const double time = simulated(problem, algorithm, link);
    EXPECT_NEAR(model / time, 1, 0.5) << describe(problem, algorithm);
    const auto size = static_cast<uint32_t>(problem.size);
    if ((size & (size - 1)) == 0) {
      EXPECT_NEAR(model / time, 1, 0.03) << describe(problem, algorithm);
    }
  });
}

TEST(ModelledCost, AgreesWithTheSimulationWhereMessagesDecide) {
  const LinkModel link{.latency_us = 20, .overhead_us = 1, .us_per_byte = 0};
  for_each_problem({0, 1}, [&](const Problem& problem, Algorithm algorithm) {
    const double model = modelled(problem, algorithm, link);
    const double time = simulated(problem, algorithm, link);
    // The model charges a root for what it receives as well: up to 31 us here.
    EXPECT_GE(model, time * 0.99) << describe(problem, algorithm);
    EXPECT_LE(model, time * 1.51 + 31) << describe(problem, algorithm);
  });
}

TEST(Choose, TakesTheFastestBySimulationOrOneNearIt) {
  const LinkModel link{.latency_us = 20, .overhead_us = 1, .us_per_byte = 0.05};
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather}) {
    for (const int32_t size : {2, 4, 8, 16, 32}) {
      for (const uint64_t count : {1U, 100U, 10000U}) {
        const Problem problem{.kind = kind, .size = size, .count = count};
        const Algorithm chosen = choose({.links = {link, link}}, problem, kElementBytes);
        double best = simulated(problem, chosen, link);
        const double taken = best;
        for (int i = 0; i < kAlgorithmCount; ++i) {
          const auto algorithm = static_cast<Algorithm>(i);
          if (!supports(algorithm, problem)) continue;
          best = std::min(best, simulated(problem, algorithm, link));
        }
        EXPECT_LE(taken, best * 1.1) << describe(problem, chosen);
      }
    }
  }
}

TEST(Choose, ChangesFromOneShotToTwoShotWhereTheCurvesCross) {
  // n* = latency P / ((P - 1) (P - 2) us_per_byte), where messages cost nothing but latency: 13.3
  // KiB here.
  const LinkModel link{.latency_us = 20, .overhead_us = 0, .us_per_byte = 1e-3};
  const auto chosen = [&](uint64_t bytes) {
    return choose({.links = {link, link}}, {.kind = OpKind::kAllreduce, .size = 4, .count = bytes},
                  1);
  };
  EXPECT_EQ(chosen(13000), Algorithm::kOneShot);
  EXPECT_EQ(chosen(13700), Algorithm::kTwoShot);
}

TEST(Choose, TakesTheFirstOfEqualsWhateverRoundingSays) {
  // Between two ranks one-shot, recursive doubling and a chain of one are the same messages, but
  // only the first is cut into chunks.
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> about(0.1, 10);
  for (int i = 0; i < 1000; ++i) {
    const LinkModel link{.latency_us = about(random),
                         .overhead_us = about(random),
                         .us_per_byte = about(random) * 1e-4};
    const uint64_t count = uint64_t{1} << (random() % 27);
    const Problem problem{.kind = OpKind::kAllreduce, .size = 2, .count = count + random() % count};
    EXPECT_EQ(choose({.links = {link, link}}, problem, 4), Algorithm::kOneShot) << problem.count;
  }
}

TEST(Choose, LeavesFanInForTheRingWhenManyLargeMessagesWouldMeet) {
  const Problem problem{.kind = OpKind::kAllreduce, .size = 32, .count = uint64_t{64} << 20};
  EXPECT_EQ(choose({}, problem, 4), Algorithm::kRabenseifner);
  Problem odd = problem;
  odd.size = 33;
  EXPECT_EQ(choose({}, odd, 4), Algorithm::kRing);
}

TEST(Choose, IsTheSameOnEveryRankOfAnUnevenOperation) {
  const std::vector<uint64_t> counts = {1, 100000, 0, 7};
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kReducescatter, OpKind::kAlltoall,
                            OpKind::kGather, OpKind::kScatter}) {
    Problem problem{.kind = kind, .size = 4, .counts = counts};
    if (kind == OpKind::kAlltoall) problem.send_counts = counts;
    const Algorithm first = choose({}, problem, 4);
    std::vector<uint64_t> own = counts;
    for (problem.rank = 1; problem.rank < 4; ++problem.rank) {
      problem.count = counts[static_cast<size_t>(problem.rank)];
      if (kind == OpKind::kAlltoall) {  // each rank has its own counts
        std::rotate(own.begin(), own.begin() + 1, own.end());
        problem.counts = problem.send_counts = own;
      }
      problem.in_place = !problem.in_place;
      EXPECT_EQ(choose({}, problem, 4), first) << name_of(kind);
    }
  }
}

TEST(Choose, FindsAnAlgorithmForEveryKindAlsoInAGroupOfOne) {
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    const auto operation = static_cast<OpKind>(kind);
    const bool pair = is_pair(operation);
    const Problem problem{
        .kind = operation, .size = pair ? 2 : 1, .root = pair ? 1 : 0, .count = 3};
    EXPECT_TRUE(supports(choose({}, problem, 4), problem)) << name_of(operation);
  }
  EXPECT_THROW((void)choose({}, {.size = 0}, 4), ContractError);
}

TEST(Choose, TakesTheLastRuleThatCoversTheSize) {
  SelectionTable table{.rules = parse_selection_rules("allreduce=ring,allreduce:1K-1M=one_shot,"
                                                      "allreduce:4K-8K=two_shot")
                                    .value()};
  const auto chosen = [&](uint64_t count) {
    return choose(table, {.kind = OpKind::kAllreduce, .size = 4, .count = count}, 4);
  };
  EXPECT_EQ(chosen(0), Algorithm::kRing);
  EXPECT_EQ(chosen(255), Algorithm::kRing);
  EXPECT_EQ(chosen(256), Algorithm::kOneShot);
  EXPECT_EQ(chosen(1024), Algorithm::kTwoShot);
  EXPECT_EQ(chosen(2047), Algorithm::kTwoShot);
  EXPECT_EQ(chosen(2048), Algorithm::kOneShot);
  EXPECT_EQ(chosen(1 << 18), Algorithm::kRing);
  const Problem other{.kind = OpKind::kReducescatter, .size = 4, .count = 10};
  EXPECT_EQ(choose(table, other, 4), choose({}, other, 4)) << "no rule is about it";
}

TEST(Choose, PassesOverRulesForWhatTheirAlgorithmCannotDo) {
  const std::vector<uint64_t> counts = {1, 2, 3, 4};
  const SelectionTable table{.rules = parse_selection_rules("alltoall=bruck").value()};
  Problem problem{.kind = OpKind::kAlltoall, .size = 4, .count = 3};
  EXPECT_EQ(choose(table, problem, 4), Algorithm::kBruck);
  problem.counts = problem.send_counts = counts;
  EXPECT_EQ(choose(table, problem, 4), Algorithm::kDirect);
}

TEST(SelectionTable, DescribesWhereTheChoiceChanges) {
  const LinkModel link{.latency_us = 20, .overhead_us = 0, .us_per_byte = 1e-3, .measured = true};
  const SelectionTable table{.links = {.same_host = link, .other_host = {}},
                             .rules = parse_selection_rules("broadcast:5000-6000=ring").value()};
  const std::string text = describe(table, Topology::one_host(4));
  EXPECT_THAT(text, HasSubstr("4 ranks that exchange messages: latency 20.0 us, overhead 0.00 us a "
                              "message, 1000 MB/s (measured when the job started)"));
  EXPECT_THAT(text, ContainsRegex("allreduce +1  one_shot +20.0\n"));
  EXPECT_THAT(text, ContainsRegex("\n +13334  two_shot +60.0\n")) << "n* of the test above";
  EXPECT_THAT(text, ContainsRegex("\n +5000  ring +[0-9.]+  CORRO_ALGORITHMS\n"));
  EXPECT_THAT(text, ContainsRegex("\n +6000  direct +[0-9.]+\n"));
  EXPECT_THAT(describe(SelectionTable{}, Topology::one_host(4)), HasSubstr("(assumed)"));
}

TEST(SelectionTable, SurvivesTheWire) {
  SelectionTable table;
  EXPECT_EQ(decode_selection_table(encode(table)).value(), table);
  table.links.same_host = {.latency_us = 1.5, .overhead_us = 0.25, .us_per_byte = 1e-4};
  table.links.other_host = {.latency_us = 30, .overhead_us = 2, .us_per_byte = 8e-3};
  table.links.other_host.measured = true;
  for (size_t i = 0; i < kMaxSelectionRules; ++i)
    table.rules.push_back({OpKind::kReduce, Algorithm::kBinomial, i, i + 7});
  EXPECT_EQ(describe(table, Topology::one_host(1)), "1 rank: nothing to exchange\n");
  EXPECT_EQ(encode(table).size(), kEncodedTableBytes);
  EXPECT_EQ(decode_selection_table(encode(table)).value(), table);
}

TEST(SelectionTable, RefusesForeignBytes) {
  const Bytes good = encode({.rules = parse_selection_rules("reduce=direct").value()});
  const auto code_with = [&](size_t at, uint8_t value) {
    Bytes bytes = good;
    bytes[at] = std::byte{value};
    return decode_selection_table(bytes).status().code();
  };
  EXPECT_EQ(code_with(7, 0x80), Code::kInvalidArgument) << "a negative time";
  EXPECT_EQ(code_with(7, 0x7F), Code::kInvalidArgument) << "a time without end";
  EXPECT_EQ(code_with(48, 4), Code::kInvalidArgument);
  EXPECT_EQ(code_with(52, 33), Code::kInvalidArgument) << "too many rules";
  EXPECT_EQ(code_with(56, 11), Code::kInvalidArgument) << "an unknown operation";
  EXPECT_EQ(code_with(57, 9), Code::kInvalidArgument) << "an unknown algorithm";
  EXPECT_EQ(code_with(56, 0), Code::kInvalidArgument) << "direct is no allreduce";
  EXPECT_EQ(code_with(56, 9), Code::kInvalidArgument) << "nothing to choose for a send";
  EXPECT_EQ(code_with(74, 1), Code::kInvalidArgument) << "more than the rules";
  EXPECT_FALSE(decode_selection_table(BytesView(good).first(good.size() - 1)).ok());
}

// -- aggregators ----------------------------------------------------------------------------------

/// Four ranks on hosts of their own, with links of 1 Gbit/s.
struct ServedChoice {
  Topology topology = Topology(std::vector<int32_t>{0, 1, 2, 3});
  SelectionTable table{
      .links = {.same_host = {}, .other_host = {.latency_us = 30, .us_per_byte = 1.0 / 118}}};
  [[nodiscard]] std::optional<Problem> of(uint64_t bytes, int32_t aggregators) const {
    const Problem problem{
        .kind = OpKind::kAllreduce, .size = 4, .count = bytes, .topology = &topology};
    const Topology all = with_aggregators(topology, aggregators);
    return choose_served(table, problem, aggregators, all, 1);
  }
};

TEST(ServedChoice, TakesAggregatorsForWhatIsLarge) {
  const ServedChoice choice;
  EXPECT_FALSE(choice.of(1024, 4));
  EXPECT_FALSE(choice.of((4 << 20) - 1, 4)) << "where the model alone would take them";
  ASSERT_TRUE(choice.of(4 << 20, 4));
  EXPECT_EQ(choice.of(4 << 20, 4)->size, 8);
  EXPECT_EQ(choice.of(4 << 20, 4)->folds_as, Algorithm::kTwoShot);
  EXPECT_FALSE(choice.of(256 << 20, 4));
  EXPECT_EQ(describe_served(choice.table, choice.topology, 4),
            "allreduce of 4194304 to 268435455 bytes: served by 4 aggregators\n");
}

TEST(ServedChoice, DoesNotHangOnAMillionthOfTheTime) {
  ServedChoice choice;
  choice.table.links.other_host.latency_us = 0.9;  // As it was measured once.
  choice.table.links.other_host.overhead_us = 3.5;
  EXPECT_TRUE(choice.of(4 << 20, 4)) << "Rabenseifner saves 5 of 53 000 us";
  EXPECT_TRUE(choice.of(64 << 20, 4));
  const Problem below{
      .kind = OpKind::kAllreduce, .size = 4, .count = 1 << 20, .topology = &choice.topology};
  EXPECT_EQ(choose(choice.table, below, 1), Algorithm::kRabenseifner) << "nobody serves that";
}

TEST(ServedChoice, FollowsTheLastRule) {
  ServedChoice choice;
  const auto rules = [&](const char* text) { choice.table.rules = *parse_selection_rules(text); };
  rules("allreduce=ring");
  EXPECT_FALSE(choice.of(4 << 20, 4));
  rules("allreduce=ring,allreduce:1M-=served");
  EXPECT_FALSE(choice.of(1 << 19, 1));
  EXPECT_EQ(choice.of(4 << 20, 1)->folds_as, Algorithm::kRing);
  rules("allreduce=served,allreduce=two_shot");
  EXPECT_FALSE(choice.of(4 << 20, 4));
}

TEST(ServedChoice, LeavesAloneWhatFoldsInAnotherOrder) {
  ServedChoice choice;
  choice.table.rules = *parse_selection_rules("allreduce=rabenseifner,allreduce=served");
  EXPECT_FALSE(choice.of(4 << 20, 4));
}

}  // namespace
}  // namespace corro::collective
