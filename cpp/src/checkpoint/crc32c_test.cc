#include "checkpoint/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace corro::checkpoint {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32c, IsThatOfThePublishedExamples) {
  for (const Crc32c sum : {fastest_crc32c(), Crc32c{crc32c_by_tables}}) {
    EXPECT_EQ(sum({}), 0U);
    EXPECT_EQ(sum(bytes_of("123456789")), 0xE3069283U);
    EXPECT_EQ(sum(std::vector<std::byte>(32)), 0x8A9136AAU);
    EXPECT_EQ(sum(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
  }
}

TEST(Crc32c, InstructionAndTablesAgreeForEveryLengthAndAlignment) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t from = 0; from < 9; ++from) {
    for (size_t length = 0; from + length <= bytes.size(); ++length) {
      const auto part = std::span(bytes).subspan(from, length);
      ASSERT_EQ(crc32c(part), crc32c_by_tables(part)) << from << " + " << length;
    }
  }
}

}  // namespace
}  // namespace corro::checkpoint
