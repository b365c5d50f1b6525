#include "checkpoint/share.h"

#include <gtest/gtest.h>

#include <random>

#include "checkpoint/manifest.h"

namespace corro::checkpoint {
namespace {

/// A manifest in which each rank has one file with its share.
Manifest shared_out(uint32_t world, const std::vector<Tensor>& tensors) {
  Manifest manifest{.step = 1, .world = world};
  for (size_t i = 0; i < tensors.size(); ++i)
    manifest.tensors.push_back({std::to_string(i), tensors[i].dtype, tensors[i].shape, {}});
  for (uint32_t rank = 0; rank < world; ++rank) {
    for (const Shared& part : share_of(rank, world, tensors))
      manifest.tensors[part.tensor].pieces.push_back({rank, 0, part.box});
  }
  return manifest;
}

uint64_t bytes_of(const Manifest& manifest, uint32_t rank) {
  uint64_t bytes = 0;
  for (const TensorEntry& tensor : manifest.tensors) {
    for (const Piece& piece : tensor.pieces)
      bytes += piece.file == rank ? elements_of(piece.box.shape) * size_of(tensor.dtype) : 0;
  }
  return bytes;
}

TEST(Share, OneRankHasEverythingWhole) {
  const Manifest manifest =
      shared_out(1, {{DType::kF32, {3, 4}}, {DType::kBool, {}}, {DType::kI64, {0, 2}}});
  for (const TensorEntry& tensor : manifest.tensors) {
    ASSERT_EQ(tensor.pieces.size(), 1U);
    EXPECT_EQ(tensor.pieces[0].box, whole_of(tensor.shape));
  }
}

TEST(Share, LargeTensorsAreCutBetweenRowsAndSmallOnesNot) {
  const Manifest manifest = shared_out(2, {{DType::kF32, {1, 1000, 1000}}, {DType::kF32, {1000}}});
  ASSERT_EQ(manifest.tensors[0].pieces.size(), 2U);
  EXPECT_EQ(manifest.tensors[0].pieces[0].box, (Box{{0, 0, 0}, {1, 500, 1000}}));
  EXPECT_EQ(manifest.tensors[1].pieces.size(), 1U);
  EXPECT_NEAR(static_cast<double>(bytes_of(manifest, 0)), 2'002'000.0, 4000.0);
}

TEST(Share, EveryElementIsWrittenOnceByAnyNumberOfRanks) {
  std::mt19937 random(3);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Tensor> tensors(static_cast<size_t>(below(6)));
    uint64_t total = 0;
    uint64_t most = 0;
    for (Tensor& tensor : tensors) {
      tensor.dtype = static_cast<DType>(below(kDTypeCount));
      for (int64_t dims = below(4); dims > 0; --dims) tensor.shape.push_back(below(300));
      const uint64_t bytes = elements_of(tensor.shape) * size_of(tensor.dtype);
      total += bytes;
      most = std::max(most, std::max<uint64_t>(kLeastCutBytes, bytes / 300));
    }
    const auto world = static_cast<uint32_t>(below(9) + 1);
    const Manifest manifest = shared_out(world, tensors);
    ASSERT_TRUE(check_complete(manifest).ok()) << check_complete(manifest).message();
    for (uint32_t rank = 0; rank < world; ++rank)
      EXPECT_LE(bytes_of(manifest, rank), total / world + 2 * most);
  }
}

}  // namespace
}  // namespace corro::checkpoint
