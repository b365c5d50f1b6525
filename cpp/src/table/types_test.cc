#include "table/types.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::table {
namespace {

using ::testing::HasSubstr;
using Change = std::function<void(TableSpec&)>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TableSpec good() { return {.name = "users", .dim = 16}; }

TableSpec changed(const Change& change) {
  TableSpec spec = good();
  change(spec);
  return spec;
}

TEST(TableSpec, NamesOptimizersBothWays) {
  for (int i = 0; i < kOptimizerKindCount; ++i) {
    const auto kind = static_cast<OptimizerKind>(i);
    EXPECT_EQ(optimizer_named(name_of(kind)), kind);
  }
  EXPECT_EQ(name_of(OptimizerKind::kRowwiseAdagrad), "rowwise_adagrad");
  EXPECT_EQ(optimizer_named("lamb"), std::nullopt);
}

TEST(TableSpec, IsCheckedFieldByField) {
  EXPECT_TRUE(check(good()).ok());
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& s) { s.name = ""; }, "table: its name has 0 bytes, and has to have 1 to 128"},
      {[](auto& s) { s.name = std::string(129, 'a'); }, "has 129 bytes"},
      {[](auto& s) { s.name = "a b"; }, "letters, digits"},
      {[](auto& s) { s.name = "a\n"; }, "letters, digits"},
      {[](auto& s) { s.dim = 0; }, "table users: dim is 0, and has to be 1 to 4096"},
      {[](auto& s) { s.dim = 4097; }, "dim is 4097"},
      {[](auto& s) { s.dtype = DType::kF64; },
       "table users: dtype is f64, and has to be f32, bf16 or f16"},
      {[](auto& s) { s.dtype = static_cast<DType>(200); }, "dtype is unknown"},
      {[](auto& s) { s.optimizer.kind = static_cast<OptimizerKind>(6); }, "optimizer.kind is 6"},
      {[](auto& s) { s.optimizer.lr = 0; },
       "table users: optimizer.lr is 0, and has to be above 0, and finite"},
      {[](auto& s) { s.optimizer.lr = kInfinity; }, "optimizer.lr is inf"},
      {[](auto& s) { s.optimizer.lr = kInfinity - kInfinity; }, "optimizer.lr is "},
      {[](auto& s) { s.optimizer.momentum = 1; },
       "optimizer.momentum is 1, and has to be in [0, 1)"},
      {[](auto& s) { s.optimizer.beta1 = -0.5F; }, "optimizer.beta1 is -0.5"},
      {[](auto& s) { s.optimizer.beta2 = 1; }, "optimizer.beta2 is 1"},
      {[](auto& s) { s.optimizer.epsilon = -1; },
       "optimizer.epsilon is -1, and has to be at least 0, and finite"},
      {[](auto& s) { s.optimizer.initial_accumulator = -1; },
       "optimizer.initial_accumulator is -1"},
      {[](auto& s) { s.optimizer.l1 = -1; }, "optimizer.l1 is -1"},
      {[](auto& s) { s.optimizer.l2 = kInfinity; }, "optimizer.l2 is inf"},
      {[](auto& s) { s.optimizer.beta = -1; }, "optimizer.beta is -1"},
      {[](auto& s) { s.initial.kind = static_cast<InitialKind>(3); }, "initial.kind is 3"},
      {[](auto& s) { s.initial.low = kInfinity; }, "initial.low is inf, and has to be finite"},
      {[](auto& s) { s.initial = {.kind = InitialKind::kUniform, .low = 1, .high = 1}; },
       "initial.high is 1, and has to be above initial.low"},
      {[](auto& s) { s.initial = {.kind = InitialKind::kNormal, .low = 0, .high = -1}; },
       "initial.high is -1, and has to be at least 0"},
      {[](auto& s) { s.retention.least_pushes = 65536; },
       "retention.least_pushes is 65536, and has to be at most 65535"},
      {[](auto& s) { s.retention.idle_steps = 1'000'000'001; },
       "retention.idle_steps is 1000000001"},
      {[](auto& s) { s.retention.most_bytes = 1048575; },
       "retention.most_bytes is 1048575, and has to be 0 or at least 1048576"},
      {[](auto& s) { s.retention.spill = "/rows"; },
       "with retention.spill, retention.most_bytes says how much stays in memory"},
      {[](auto& s) { s.retention = {.most_bytes = 1U << 20U, .spill = "rows"}; },
       "retention.spill has to be an absolute path of at most 4000 bytes"},
  };
  for (const auto& [change, text] : cases) {
    const Status status = check(changed(change));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("\n")));
  }
}

TEST(TableSpec, TwoOfOneNameAreComparedFieldByField) {
  EXPECT_TRUE(check_alike(good(), good()).ok());
  EXPECT_TRUE(check_alike(good(), changed([](auto& s) { s.optimizer.lr = 1; })).ok());
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& s) { s.dim = 8; }, "table users: dim is 16 here and 8 there"},
      {[](auto& s) { s.dtype = DType::kBF16; }, "dtype is f32 here and bf16 there"},
      {[](auto& s) { s.seed = 1; }, "seed is 0 here and 1 there"},
      {[](auto& s) { s.optimizer.kind = OptimizerKind::kAdam; },
       "optimizer.kind is sgd here and adam there"},
      {[](auto& s) { s.optimizer.momentum = 0; }, "optimizer.momentum is 0.9 here and 0 there"},
      {[](auto& s) { s.optimizer.beta1 = 0; }, "optimizer.beta1"},
      {[](auto& s) { s.optimizer.beta2 = 0; }, "optimizer.beta2"},
      {[](auto& s) { s.optimizer.epsilon = 0; }, "optimizer.epsilon is 1e-08 here and 0 there"},
      {[](auto& s) { s.optimizer.initial_accumulator = 1; }, "optimizer.initial_accumulator"},
      {[](auto& s) { s.optimizer.l1 = 1; }, "optimizer.l1"},
      {[](auto& s) { s.optimizer.l2 = 1; }, "optimizer.l2"},
      {[](auto& s) { s.optimizer.beta = 1; }, "optimizer.beta"},
      {[](auto& s) { s.initial.kind = InitialKind::kNormal; },
       "initial.kind is constant here and normal there"},
      {[](auto& s) { s.initial.low = 1; }, "initial.low"},
      {[](auto& s) { s.initial.high = 1; }, "initial.high"},
      {[](auto& s) { s.retention.least_pushes = 2; }, "retention.least_pushes is 0 here and 2"},
      {[](auto& s) { s.retention.idle_steps = 2; }, "retention.idle_steps"},
      {[](auto& s) { s.retention.most_bytes = 1U << 20U; }, "retention.most_bytes"},
  };
  for (const auto& [change, text] : cases) {
    const Status status = check_alike(good(), changed(change));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
}

}  // namespace
}  // namespace corro::table
