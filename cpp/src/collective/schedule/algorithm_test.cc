#include "collective/schedule/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto rules = parse_selection_rules(text);
  EXPECT_EQ(rules.status().code(), Code::kInvalidArgument) << text;
  EXPECT_EQ(rules.status().message().find('\n'), std::string::npos);
  return rules.status().message();
}

TEST(SelectionRules, NameOperationSizesAndAlgorithm) {
  EXPECT_THAT(parse_selection_rules("").value(), ElementsAre());
  EXPECT_THAT(
      parse_selection_rules("allreduce:64K-4M=ring,broadcast=binomial,alltoall:1G-=direct,"
                            " allgather:-3k = bruck")
          .value(),
      ElementsAre(SelectionRule{OpKind::kAllreduce, Algorithm::kRing, 64U << 10U, 4U << 20U},
                  SelectionRule{OpKind::kBroadcast, Algorithm::kBinomial, 0, UINT64_MAX},
                  SelectionRule{OpKind::kAlltoall, Algorithm::kDirect, 1U << 30U, UINT64_MAX},
                  SelectionRule{OpKind::kAllgather, Algorithm::kBruck, 0, 3U << 10U}));
}

TEST(SelectionRules, CoverFromTheFirstSizeToBelowTheLast) {
  const SelectionRule rule{OpKind::kAllreduce, Algorithm::kRing, 10, 20};
  EXPECT_FALSE(rule.covers(OpKind::kAllreduce, 9));
  EXPECT_TRUE(rule.covers(OpKind::kAllreduce, 10));
  EXPECT_TRUE(rule.covers(OpKind::kAllreduce, 19));
  EXPECT_FALSE(rule.covers(OpKind::kAllreduce, 20));
  EXPECT_FALSE(rule.covers(OpKind::kReduce, 15));
}

TEST(SelectionRules, AnErrorNamesTheVariableTheyAreFrom) {
  Environment environment;
  environment.algorithms = "allreduce=ring";
  EXPECT_THAT(selection_rules_of(environment).value(),
              ElementsAre(SelectionRule{OpKind::kAllreduce, Algorithm::kRing}));
  environment.algorithms = "allreduce=fast";
  EXPECT_THAT(selection_rules_of(environment).status().message(),
              HasSubstr("CORRO_ALGORITHMS: 'allreduce=fast': expected one of"));
}

TEST(SelectionRules, ErrorsSayWhatThereIs) {
  EXPECT_THAT(error_of("ring"), HasSubstr("'ring': expected OPERATION=ALGORITHM or"));
  EXPECT_THAT(
      error_of("allreduce=ring,"
               "sum=ring"),
      HasSubstr("'sum=ring': expected one of the operations allreduce, allgather, reducescatter,"));
  EXPECT_THAT(error_of("send=direct"), HasSubstr("expected one of the operations "))
      << "nothing to choose";
  EXPECT_THAT(error_of("allreduce=fast"),
              HasSubstr("'allreduce=fast': expected one of the algorithms of allreduce: one_shot, "
                        "two_shot, ring, "
                        "recursive_doubling, rabenseifner"));
  EXPECT_THAT(error_of("barrier=ring"),
              HasSubstr("expected one of the algorithms of barrier: binomial, direct"));
  for (const std::string_view range : {"", "-", "5", "9-3", "4-4", "1KB-", "1T-", "a-b",
                                       "99999999999999999999-", "18446744073709551615K-"}) {
    EXPECT_THAT(error_of("allreduce:" + std::string(range) + "=ring"),
                HasSubstr("expected a range of bytes FROM-UNTIL"))
        << range;
  }
  std::string many;
  for (size_t i = 0; i <= kMaxSelectionRules; ++i) many += "allreduce=ring,";
  EXPECT_THAT(error_of(many), HasSubstr("expected at most 32 rules"));
}

}  // namespace
}  // namespace corro::collective
