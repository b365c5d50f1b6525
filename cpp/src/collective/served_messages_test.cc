#include "collective/served_messages.h"

#include <gtest/gtest.h>

#include <random>

namespace corro::collective {
namespace {

TEST(ServedMessages, AreReadAsTheyWereWritten) {
  const ServedGroup group{.epoch = 3, .size = 5, .rank = 4, .aggregators = 2, .index = 1};
  const Bytes bytes = encode(group);
  ASSERT_EQ(bytes.size(), kServedGroupBytes);
  const auto read = decode_served_group(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->agrees_with(group));
  EXPECT_EQ(read->rank, 4);

  const ServedCall call{.lane = {.epoch = 1, .key = 99},
                        .op = 7,
                        .count = 1000,
                        .shape = 12,
                        .prescale = 0.5,
                        .postscale = -2,
                        .absent = 1,
                        .dtype = DType::kBF16,
                        .reduce_op = ReduceOp::kAverage,
                        .folds_as = Algorithm::kRing};
  ASSERT_EQ(encode(call).size(), kServedCallBytes);
  EXPECT_EQ(*decode_served_call(encode(call)), call);
  EXPECT_EQ(request_of(call, 2).absent, 3);
}

TEST(ServedMessages, RefuseWhatNobodyWrites) {
  const auto refuses = [](auto change) {
    ServedCall call;
    change(call);
    return !decode_served_call(encode(call)).ok();
  };
  EXPECT_FALSE(refuses([](ServedCall&) {}));
  EXPECT_TRUE(refuses([](ServedCall& call) { call.count = kMostElements + 1; }));
  EXPECT_TRUE(refuses([](ServedCall& call) { call.absent = -1; }));
  EXPECT_TRUE(refuses([](ServedCall& call) { call.dtype = static_cast<DType>(kDTypeCount); }));
  EXPECT_TRUE(refuses([](ServedCall& call) { call.reduce_op = ReduceOp::kAdasum; }));
  EXPECT_TRUE(refuses([](ServedCall& call) { call.folds_as = Algorithm::kBruck; }));
  EXPECT_TRUE(refuses([](ServedCall& call) {
    call.dtype = DType::kI32;
    call.reduce_op = ReduceOp::kAverage;
    call.folds_as = Algorithm::kRing;
  })) << "sums of integers may not fit";
  EXPECT_FALSE(decode_served_group(encode(ServedGroup{.size = 2, .rank = 2})).ok());
  EXPECT_FALSE(decode_served_group(encode(ServedGroup{.aggregators = 2, .index = 2})).ok());
}

TEST(ServedMessages, OfRandomBytesAreReadOrRefused) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random() % 70);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4);
    if (const auto call = decode_served_call(bytes); call.ok()) {
      EXPECT_EQ(encode(*call), bytes);
    }
    if (const auto group = decode_served_group(bytes); group.ok()) {
      EXPECT_EQ(encode(*group), bytes);
    }
  }
}

}  // namespace
}  // namespace corro::collective
