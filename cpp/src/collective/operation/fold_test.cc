// What a rank that has nothing to give contributes, and what an average of the others is.
#include "collective/operation/fold.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace corro::collective {
namespace {

constexpr std::array kPlainOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                  ReduceOp::kProduct};

/// Every pattern of bits that a value of one or two bytes has; for larger types, some.
std::vector<std::byte> values_of(DType dtype) {
  constexpr size_t kMost = size_t{1} << 16U;
  const size_t element = size_of(dtype);
  std::vector<std::byte> values(kMost * element);
  for (size_t i = 0; i < kMost; ++i) {
    const uint64_t bits = dtype == DType::kBool ? i % 2 : i * 0x9E3779B97F4A7C15;
    const uint64_t whole = element <= 2 ? (dtype == DType::kBool ? bits : i) : bits;
    std::memcpy(values.data() + i * element, &whole, element);
  }
  return values;
}

TEST(Identity, ChangesNoResultOfAnyTypeAndOperator) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::vector<std::byte> values = values_of(dtype);
    const uint64_t count = values.size() / size_of(dtype);
    for (const ReduceOp op : kPlainOps) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
      std::vector<std::byte> identity(values.size()), alone(values.size()), both(values.size());
      fill_identity(dtype, op, identity.data(), count);
      const std::array<const std::byte*, 1> one = {values.data()};
      // Of equal values the first is kept: 0 + -0 is 0, as it is for two ranks.
      const std::array<const std::byte*, 2> two = {values.data(), identity.data()};
      const OpRequest request{.dtype = dtype, .reduce_op = op};
      fold_final(request, 1, alone.data(), one, count);
      fold_final(request, 2, both.data(), two, count);
      size_t different = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto at = [&](const std::vector<std::byte>& all) {
          return all.data() + i * size_of(dtype);
        };
        uint64_t bits = 0;
        std::memcpy(&bits, at(both), size_of(dtype));
        const bool equal = std::memcmp(at(alone), at(both), size_of(dtype)) == 0;
        different += equal || (op == ReduceOp::kSum && bits == 0) ? 0 : 1;
      }
      EXPECT_EQ(different, 0U);
    }
  }
}

TEST(Identity, IsNotScaled) {
  const OpRequest request{
      .dtype = DType::kF32, .reduce_op = ReduceOp::kMin, .prescale = -2, .gives_identity = true};
  float identity = 0;
  fill_identity(request.dtype, request.reduce_op, reinterpret_cast<std::byte*>(&identity), 1);
  float contribution = 0;
  copy_contribution(request, reinterpret_cast<std::byte*>(&contribution),
                    reinterpret_cast<const std::byte*>(&identity), 1);
  EXPECT_EQ(contribution, identity);
}

template <typename T>
T average_of_two_present_and_one_absent(DType dtype, T a, T b) {
  const T zero{};
  T result{};
  const std::array<const std::byte*, 3> sources = {reinterpret_cast<const std::byte*>(&a),
                                                   reinterpret_cast<const std::byte*>(&zero),
                                                   reinterpret_cast<const std::byte*>(&b)};
  fold_final({.dtype = dtype, .reduce_op = ReduceOp::kAverage, .absent = 1}, 3,
             reinterpret_cast<std::byte*>(&result), sources, 1);
  return result;
}

TEST(Average, IsOfTheRanksThatAreNotAbsent) {
  EXPECT_EQ(average_of_two_present_and_one_absent<float>(DType::kF32, 4, 7), 5.5F);
  EXPECT_EQ(average_of_two_present_and_one_absent<int8_t>(DType::kI8, 127, 126), 126);
  EXPECT_EQ(average_of_two_present_and_one_absent<int64_t>(DType::kI64, -4, -7), -5);
  EXPECT_EQ(average_of_two_present_and_one_absent<uint16_t>(DType::kU16, 65535, 65534), 65534);
}

}  // namespace
}  // namespace corro::collective
