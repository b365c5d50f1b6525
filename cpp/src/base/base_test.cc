#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/guarded.h"
#include "base/power_of_two.h"
#include "base/status.h"

namespace corro {
namespace {

TEST(Time, ATimeoutWithoutEndIsNeverOver) {
  const Time now{std::chrono::seconds(5)};
  EXPECT_EQ(now + Duration(7), Time{Duration(5'000'000'007)});
  EXPECT_EQ(now + Duration::max(), Time::never());
  EXPECT_EQ(Time::never() + Duration(1), Time::never());
  EXPECT_EQ(now + Duration(-1), Time{Duration(4'999'999'999)});
}

TEST(Status, CarriesCodeMessageAndContext) {
  const Status failure(Code::kUnavailable, "no route");
  EXPECT_FALSE(failure.ok());
  EXPECT_EQ(failure.with_context("rank 3").message(), "rank 3: no route");
  EXPECT_EQ(failure.to_string(), "UNAVAILABLE: no route");
  EXPECT_EQ(Status().with_context("rank 3").to_string(), "OK");
}

TEST(Status, KeepsTheDetailWhenContextIsAdded) {
  const Status failure(Code::kUnavailable, "lost",
                       {.rank = 2, .op = "allreduce", .phase = "reduce"});
  ASSERT_TRUE(failure.with_context("x").detail().has_value());
  EXPECT_EQ(failure.with_context("x").detail()->rank, 2);
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  CORRO_ASSIGN(const int once, half(value));
  return half(once);
}

TEST(Result, PropagatesTheFirstFailure) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_THROW((void)quarter(6).value(), ContractError);
}

TEST(Check, SaysWhereWhatAndWithWhichValues) {
  const int rank = 7;
  try {
    CORRO_CHECK(rank < 4, rank, "size 4");
    FAIL();
  } catch (const ContractError& error) {
    EXPECT_NE(std::string(error.what()).find("rank < 4 (7, size 4)"), std::string::npos);
  }
}

TEST(ByteReader, RefusesWhatDoesNotFitAndStaysFailed) {
  ByteWriter writer;
  writer.write<uint16_t>(0x0201);
  writer.write_string("abc");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.read<uint16_t>(), 0x0201);
  EXPECT_EQ(reader.read_string(2), std::nullopt) << "longer than its cap";
  EXPECT_EQ(reader.read<uint8_t>(), std::nullopt) << "stays failed";
  EXPECT_FALSE(reader.done());
}

TEST(ByteReader, ReadsBackWhatWasWritten) {
  ByteWriter writer;
  writer.write<uint64_t>(42);
  writer.write_string("abc");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.read<uint64_t>(), 42U);
  EXPECT_EQ(reader.read_string(3), "abc");
  EXPECT_TRUE(reader.done());
}

TEST(DType, SizesMatchTheNames) {
  EXPECT_EQ(size_of(DType::kBF16), 2U);
  EXPECT_EQ(name_of(DType::kBF16), "bf16");
  EXPECT_EQ(size_of(DType::kF64), 8U);
  EXPECT_EQ(size_of(DType::kU64), 8U);
  EXPECT_EQ(name_of(DType::kU64), "u64");
}

TEST(PowerOfTwo, NumbersTheActiveRanksOneToOne) {
  for (int32_t size = 1; size <= 130; ++size) {
    const PowerOfTwo ids(size);
    EXPECT_EQ(ids.active & (ids.active - 1), 0);
    int32_t extras = 0;
    for (int32_t rank = 0; rank < size; ++rank) {
      if (ids.is_extra(rank)) {
        ++extras;
        EXPECT_TRUE(ids.has_extra(rank - 1));
      } else {
        EXPECT_LT(ids.id_of(rank), ids.active);
        EXPECT_EQ(ids.rank_of(ids.id_of(rank)), rank);
      }
    }
    EXPECT_EQ(extras, ids.extras);
  }
}

}  // namespace
}  // namespace corro
