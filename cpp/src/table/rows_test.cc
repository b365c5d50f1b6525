#include "table/rows.h"

#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

namespace corro::table {
namespace {

void write(const Rows& rows, uint32_t slot, size_t row_bytes) {
  std::memset(rows.at(slot), static_cast<int>(slot % 251), row_bytes);
}

TEST(Rows, KeepWhatIsWrittenWhenTheyGrow) {
  for (const size_t row_bytes : {4U, 20U, 64U, 68U, 1000U, 49160U}) {
    Rows rows(row_bytes);
    const auto count = static_cast<uint32_t>(3 * (kHugePage / row_bytes) + 3);
    for (uint32_t slot = 0; slot < count; ++slot) {
      ASSERT_EQ(rows.take(), slot);
      write(rows, slot, row_bytes);
    }
    for (uint32_t slot = 0; slot < count; ++slot) {
      const auto expected = static_cast<std::byte>(slot % 251);
      ASSERT_EQ(rows.at(slot)[0], expected) << row_bytes << " " << slot;
      ASSERT_EQ(rows.at(slot)[row_bytes - 1], expected) << row_bytes << " " << slot;
    }
    EXPECT_EQ(rows.count(), count);
    EXPECT_GE(rows.bytes(), count * row_bytes);
    EXPECT_LE(rows.bytes(), count * row_bytes + 2 * kHugePage);
  }
}

TEST(Rows, AFewTakeLittle) {
  Rows rows(64);
  EXPECT_EQ(rows.bytes(), 0);
  for (int i = 0; i < 64; ++i) (void)rows.take();
  EXPECT_EQ(rows.bytes(), 4096);
  EXPECT_EQ(rows.bytes_of_next(), 4096);
}

TEST(Rows, SayWhatTheNextTakes) {
  for (const size_t row_bytes : {4U, 68U, 49160U}) {
    Rows rows(row_bytes);
    for (size_t i = 0; i < 3 * kHugePage / row_bytes; ++i) {
      const size_t expected = rows.bytes() + rows.bytes_of_next();
      (void)rows.take();
      ASSERT_EQ(rows.bytes(), expected) << row_bytes << " " << i;
    }
  }
}

TEST(Rows, GiveTheLastThatCameBackFirst) {
  Rows rows(4);
  for (int i = 0; i < 10; ++i) (void)rows.take();
  rows.give(3);
  rows.give(7);
  EXPECT_EQ(rows.count(), 8);
  EXPECT_EQ(rows.bytes_of_next(), 0);
  EXPECT_EQ(rows.take(), 7);
  EXPECT_EQ(rows.take(), 3);
  EXPECT_EQ(rows.take(), 10);
}

TEST(Rows, ShrinkToTheSlotsBelowAndKeepTheirRows) {
  constexpr size_t kBytes = 1000;
  Rows rows(kBytes);
  const auto count = static_cast<uint32_t>(3 * (kHugePage / kBytes));
  for (uint32_t i = 0; i < count; ++i) write(rows, rows.take(), kBytes);
  for (uint32_t left = count; rows.can_shrink();) {
    const uint32_t first = rows.capacity_when_shrunk();
    for (uint32_t slot = first; slot < left; ++slot) rows.give(slot);
    rows.give(first - 1);  // A free one below.
    const size_t before = rows.bytes();
    rows.shrink();
    left = first;
    EXPECT_EQ(rows.count(), left - 1);
    EXPECT_LT(rows.bytes(), before);
    for (uint32_t slot = 0; slot + 1 < left; ++slot)
      ASSERT_EQ(rows.at(slot)[kBytes - 1], static_cast<std::byte>(slot % 251)) << slot;
    EXPECT_EQ(rows.take(), left - 1);
    write(rows, left - 1, kBytes);
  }
  EXPECT_LE(rows.bytes(), 4096);
  for (uint32_t i = 0; i < 5000; ++i) (void)rows.take();
  EXPECT_EQ(rows.at(0)[0], std::byte{0});
}

}  // namespace
}  // namespace corro::table
