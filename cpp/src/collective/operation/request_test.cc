// What the engine refuses before anything is sent: buffers that would destroy their own input.
#include "collective/operation/request.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace corro::collective {
namespace {

constexpr int32_t kRank = 1, kSize = 3;
constexpr uint64_t kBlock = 8;

class Buffers : public testing::Test {
 protected:
  /// The request of rank 1 of 3 whose input and output start at these elements.
  OpRequest at(OpKind kind, size_t input, size_t output) {
    return {.kind = kind,
            .dtype = DType::kF32,
            .root = kRank,
            .input = bytes(input),
            .output = bytes(output),
            .count = kBlock};
  }
  std::byte* bytes(size_t element) { return reinterpret_cast<std::byte*>(&memory_[element]); }
  static bool takes(const OpRequest& request) { return validate(request, kRank, kSize).ok(); }

  std::array<float, 200> memory_{};
};

constexpr std::array<OpKind, 8> kKinds = {
    OpKind::kAllreduce, OpKind::kReduce, OpKind::kBroadcast,     OpKind::kAlltoall,
    OpKind::kAllgather, OpKind::kGather, OpKind::kReducescatter, OpKind::kScatter};

TEST_F(Buffers, ThatLieApartAreTaken) {
  for (const OpKind kind : kKinds) {
    EXPECT_TRUE(takes(at(kind, 100, 100 - kBlock * kSize))) << name_of(kind);
    EXPECT_TRUE(takes(at(kind, 100, 100 + kBlock * kSize))) << name_of(kind);
  }
}

TEST_F(Buffers, OfAnOperationInPlaceAreTaken) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReduce, OpKind::kBroadcast,
                            OpKind::kAlltoall, OpKind::kReducescatter}) {
    EXPECT_TRUE(takes(at(kind, 100, 100))) << name_of(kind);
  }
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kGather})
    EXPECT_TRUE(takes(at(kind, 100, 100 - kBlock * kRank))) << name_of(kind);
  EXPECT_TRUE(takes(at(OpKind::kScatter, 100, 100 + kBlock * kRank)));
}

TEST_F(Buffers, ThatOverlapInPartAreRefused) {
  for (const OpKind kind : kKinds) {
    for (const size_t output : {100 - kBlock + 1, 99UL, 101UL, 100 + kBlock - 1})
      EXPECT_FALSE(takes(at(kind, 100, output))) << name_of(kind) << " " << output;
  }
}

TEST_F(Buffers, OfOtherCountsThanTheInputsAreRefusedInPlace) {
  OpRequest request = at(OpKind::kAlltoall, 100, 100);
  request.counts = {1, 2, 3};
  request.send_counts = {1, 2, 3};
  EXPECT_TRUE(takes(request));
  request.send_counts = {3, 2, 1};
  EXPECT_FALSE(takes(request));
}

TEST_F(Buffers, ThatAreRefusedAreNamedWithTheirRanges) {
  const Status refused = validate(at(OpKind::kAllreduce, 100, 101), kRank, kSize);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_TRUE(refused.message().starts_with("allreduce: input [0x")) << refused.message();
  EXPECT_NE(refused.message().find(") and output [0x"), std::string::npos) << refused.message();
}

TEST_F(Buffers, OfBoolHaveNoAverageAndNoFactors) {
  OpRequest request = at(OpKind::kAllreduce, 100, 100);
  request.dtype = DType::kBool;
  request.reduce_op = ReduceOp::kMax;
  EXPECT_TRUE(takes(request));
  request.postscale = 0.5;
  EXPECT_FALSE(takes(request));
  request.postscale = 1;
  request.reduce_op = ReduceOp::kAverage;
  EXPECT_FALSE(takes(request));
  request.kind = OpKind::kBroadcast;
  EXPECT_TRUE(takes(request)) << "nothing is reduced";
}

TEST_F(Buffers, ThatARankDoesNotUseAreNotLookedAt) {
  OpRequest request = at(OpKind::kReduce, 100, 101);
  request.root = 0;
  EXPECT_TRUE(takes(request)) << "no result here";
  request.kind = OpKind::kBroadcast;
  EXPECT_TRUE(takes(request)) << "no contribution from here";
}

}  // namespace
}  // namespace corro::collective
