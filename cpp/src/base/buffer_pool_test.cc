#include "base/buffer_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace corro {
namespace {

constexpr size_t kKiB = 1024;

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool(1024 * kKiB);
  BufferPool::Buffer buffer = pool.take(100 * kKiB);
  const std::byte* const memory = buffer.data();
  EXPECT_GE(buffer.capacity, 100 * kKiB);
  pool.give(std::move(buffer));
  EXPECT_EQ(pool.kept(), 100 * kKiB);
  EXPECT_EQ(pool.take(60 * kKiB).data(), memory);
  EXPECT_EQ(pool.kept(), 0U);
}

TEST(BufferPool, ABufferInUseIsNotGivenTwice) {
  BufferPool pool(1024 * kKiB);
  pool.give(pool.take(100 * kKiB));
  const BufferPool::Buffer one = pool.take(100 * kKiB);
  const BufferPool::Buffer two = pool.take(100 * kKiB);
  EXPECT_NE(one.data(), two.data());
}

TEST(BufferPool, DoesNotSpendLargeBuffersOnSmallNeeds) {
  BufferPool pool(1024 * kKiB);
  pool.give(pool.take(1000 * kKiB));
  const BufferPool::Buffer small = pool.take(20 * kKiB);
  EXPECT_EQ(small.capacity, 20 * kKiB);
  EXPECT_EQ(pool.kept(), 1000 * kKiB);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(100 * kKiB);
  std::vector<BufferPool::Buffer> buffers;
  for (int i = 0; i < 5; ++i) buffers.push_back(pool.take(40 * kKiB));
  const std::byte* const last = buffers.back().data();
  for (BufferPool::Buffer& buffer : buffers) pool.give(std::move(buffer));
  EXPECT_EQ(pool.kept(), 80 * kKiB);
  EXPECT_EQ(pool.take(40 * kKiB).data(), last) << "the oldest went";
  pool.give(pool.take(101 * kKiB));
  EXPECT_EQ(pool.kept(), 40 * kKiB) << "larger than all that may be kept";
}

TEST(BufferPool, NothingNeedsNoMemory) {
  BufferPool pool(100);
  EXPECT_EQ(pool.take(0).data(), nullptr);
  pool.give(pool.take(10));
  EXPECT_EQ(pool.kept(), 0U) << "small ones are malloc's business";
}

}  // namespace
}  // namespace corro
