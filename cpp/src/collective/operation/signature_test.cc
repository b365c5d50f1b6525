// What travels to say which operation a rank takes part in, and how disagreements read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "collective/operation/element.h"
#include "collective/operation/request.h"
#include "collective/operation/signature.h"

namespace corro::collective {
namespace {

using Dims = std::vector<uint64_t>;

Signature allreduce(const Dims& dims) {
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  return {
      .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = count, .shape = pack_shape(dims)};
}

TEST(Signature, ReadsBackAsPacked) {
  const Signature sent{.kind = OpKind::kReduce,
                       .dtype = DType::kBF16,
                       .reduce_op = ReduceOp::kProduct,
                       .root = 65535,
                       .count = (uint64_t{1} << 37U) - 1,
                       .shape = pack_shape(Dims{3, 4}),
                       .extras = 7};
  const Signature got = Signature::unpack(sent.pack());
  EXPECT_EQ(got.pack(), sent.pack());
  EXPECT_EQ(got.describe(), "reduce(bf16[3,4], product, root 65535)");
}

TEST(Signature, SaysItsDimsAsFarAsTheyFit) {
  EXPECT_EQ(allreduce({}).describe(), "allreduce(f32[], sum)");
  EXPECT_EQ(allreduce({0}).describe(), "allreduce(f32[0], sum)");
  EXPECT_EQ(allreduce({2, 0, 3}).describe(), "allreduce(f32[2,0,3], sum)");
  EXPECT_EQ(allreduce({512, 512, 3, 3}).describe(), "allreduce(f32[512,512,3,3], sum)");
  EXPECT_EQ(allreduce({50257, 768}).describe(), "allreduce(f32[50257,768], sum)");
  EXPECT_THAT(allreduce({uint64_t{1} << 33U}).describe(),
              ::testing::StartsWith("allreduce(f32[8589934592] of shape #"));
}

TEST(Signature, RowsOfUnevenOperationsAreNamedAsSuch) {
  const Signature gather{
      .kind = OpKind::kAllgather, .dtype = DType::kI64, .count = 12, .shape = pack_shape(Dims{3})};
  EXPECT_EQ(gather.describe(), "allgather(i64[12], rows [3])");
}

TEST(Signature, EveryShapeHasItsOwnWordThatIsNotZero) {
  std::set<uint64_t> words = {0};
  size_t shapes = 0;
  const auto add = [&](const Dims& dims) {
    ++shapes;
    words.insert(pack_shape(dims));
  };
  add({});
  for (uint64_t a = 0; a < 40; ++a) {
    add({a});
    for (uint64_t b = 0; b < 40; ++b) {
      add({a, b});
      add({a, b, 1});
      add({a << 30U, b << 20U, 7});            // hashed
      add({1, 1, 1, 1, 1, 1, 1, 1, 1, a, b});  // hashed: too many
    }
  }
  // a = 0 or b = 0 shifted are shapes of their own: {0, b << 20, 7} and so on.
  EXPECT_EQ(words.size(), shapes + 1);
}

TEST(Signature, ForeignBitsAreSafeToDescribe) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const SignatureBits bits{random(), random(), static_cast<uint32_t>(random()),
                             static_cast<uint16_t>(random())};
    EXPECT_LT(Signature::unpack(bits).describe().size(), 500U);
  }
}

TEST(Signature, ElementsThatAreOnlyMovedKeepTheirNames) {
  for (const char* name : {"complex64", "float8_e5m2", "datetime64[ns]", "complex128",
                           "float32 in the other byte order"}) {
    EXPECT_EQ(element_name(element_number(name)), name);
  }
  std::set<uint16_t> numbers;
  for (const char* name :
       {"complex64", "complex64 in the other byte order", "|S3", "|S4", "<U3", "", "[('a', '<i4')]",
        "[('a', '>i4')]", "[('a', '<i4')] in the other byte order"}) {
    const uint16_t number = element_number(name);
    EXPECT_NE(number, kPlainElement);
    EXPECT_TRUE(numbers.insert(number).second) << name;
  }
  EXPECT_EQ(element_name(element_number("|S3")).substr(0, 10), "elements #");

  Signature moved{.kind = OpKind::kAllgather, .count = 32};
  moved.element = element_number("complex64");
  moved.shape = pack_shape(Dims{2});
  EXPECT_EQ(Signature::unpack(moved.pack()), moved);
  EXPECT_EQ(moved.describe(), "allgather(complex64[4], rows [2])");
  Signature other = moved;
  other.element = element_number("datetime64[s]");
  EXPECT_NE(moved.pack(), other.pack());
  EXPECT_EQ(describe_difference(0, moved.pack(), 1, other.pack()),
            "rank 0 called allgather(complex64[4], rows [2]), "
            "rank 1 called allgather(datetime64[s][4], rows [2])");
}

TEST(Signature, ExtrasTellScalesAndUnevenCountsApart) {
  EXPECT_EQ(hash_extras(1, 1, {}), 0U);
  EXPECT_EQ(hash_extras(1, 1, Dims{4, 4}), 0U) << "even counts need not be given";
  const std::set<uint32_t> different = {0U,
                                        hash_extras(0.5, 1, {}),
                                        hash_extras(1, 0.5, {}),
                                        hash_extras(2, 1, {}),
                                        hash_extras(1, 1, Dims{3, 5}),
                                        hash_extras(1, 1, Dims{5, 3}),
                                        hash_extras(0.5, 1, Dims{5, 3})};
  EXPECT_EQ(different.size(), 7U);
}

TEST(Signature, CountsThatDifferOnlyInTheirOrderDisagree) {
  OpRequest one;
  one.kind = OpKind::kAllgather;
  one.count = 3;
  one.counts = {3, 5};
  OpRequest two = one;
  two.counts = {5, 3};
  EXPECT_NE(signature_of(one, 2).pack(), signature_of(two, 2).pack());
  EXPECT_EQ(signature_of(one, 2).pack(), signature_of(one, 2).pack());
}

TEST(Signature, ADifferenceThatTheWordsDoNotShowIsSaid) {
  Signature scaled = allreduce({4});
  scaled.extras = hash_extras(0.5, 1, {});
  EXPECT_EQ(describe_difference(0, allreduce({4}).pack(), 3, scaled.pack()),
            "rank 0 called allreduce(f32[4], sum), rank 3 called allreduce(f32[4], sum) with other "
            "scales or other counts per rank");
  EXPECT_EQ(describe_difference(0, allreduce({2, 3}).pack(), 1, allreduce({3, 2}).pack()),
            "rank 0 called allreduce(f32[2,3], sum), rank 1 called allreduce(f32[3,2], sum)");
}

}  // namespace
}  // namespace corro::collective
