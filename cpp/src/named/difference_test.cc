// What is said of two operations under one name begins as Horovod's texts do.
#include "named/difference.h"

#include <gtest/gtest.h>

#include <vector>

#include "named/named_test_entry.h"

namespace corro::named {
namespace {

using Dims = std::vector<uint64_t>;

Fusible operation(OpKind kind, const Dims& dims, uint64_t count) {
  return {.signature = {.kind = kind,
                        .dtype = DType::kF32,
                        .count = count,
                        .shape = collective::pack_shape(dims)}};
}

TEST(Difference, NamesTheFirstThingThatDiffers) {
  const Fusible sum = operation(OpKind::kAllreduce, {2, 3}, 6);
  Fusible other = sum;
  other.signature.extras = 1;
  EXPECT_EQ(describe_difference(sum, other), "Mismatched counts per rank.");
  other.codec = "f16";
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched compression: One rank sent by none, but another rank by f16.");
  other.signature.reduce_op = ReduceOp::kMax;
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched reduction operation: One rank sent reduction op sum, but another rank sent "
            "reduction op max.");
  other.postscale = 0.5;
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but "
            "another rank sent factors (1, 0.5).");
  other.signature.shape = collective::pack_shape(Dims{3, 2});
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [2, 3], but "
            "another rank sent a tensor of shape [3, 2].");
  other.signature.kind = OpKind::kAllgather;
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER.");
  other.signature.dtype = DType::kBF16;
  EXPECT_EQ(describe_difference(sum, other),
            "Mismatched data types: One rank had type float32, but another rank had type "
            "bfloat16.");
  Fusible small = sum;
  small.signature.dtype = DType::kU8;
  other.signature.dtype = DType::kBool;
  EXPECT_EQ(describe_difference(small, other),
            "Mismatched data types: One rank had type uint8, but another rank had type bool.");
}

TEST(Difference, NamesRoots) {
  const Fusible one = operation(OpKind::kBroadcast, {2}, 2);
  Fusible other = one;
  other.signature.root = 3;
  EXPECT_EQ(describe_difference(one, other),
            "Mismatched BROADCAST root ranks: One rank specified root rank 0, but another rank "
            "specified root rank 3.");
}

TEST(Difference, CountsTheDimsOfRowsFromOne) {
  const Fusible rows = operation(OpKind::kAllgather, {4, 5}, 20);
  EXPECT_EQ(describe_difference(rows, operation(OpKind::kAllgather, {4, 6}, 24)),
            "Mismatched ALLGATHER tensor shapes: One rank sent a tensor with dimension 2 equal to "
            "5, but another rank sent a tensor with dimension 2 equal to 6.");
  EXPECT_EQ(describe_difference(rows, operation(OpKind::kAllgather, {20}, 20)),
            "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank 3, but another "
            "rank sent a tensor of rank 2.");
}

TEST(Difference, SaysHowManyElementsWhereShapesAreNotKnown) {
  EXPECT_EQ(describe_difference(entry("a", 7).op, entry("a", 9).op),
            "Mismatched ALLREDUCE tensor shapes: One rank sent 7 elements, but another rank sent 9 "
            "elements in another shape.");
  // Equal dims of rows, and another number of rows: only those who count them as one differ.
  EXPECT_EQ(describe_difference(operation(OpKind::kAllgather, {4}, 8),
                                operation(OpKind::kAllgather, {4}, 12)),
            "Mismatched ALLGATHER tensor shapes: One rank sent 8 elements, but another rank sent "
            "12 elements in another shape.");
}

}  // namespace
}  // namespace corro::named
