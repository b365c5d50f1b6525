#include "plan/tables/tables_file.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/bad_files.h"

namespace corro::plan {
namespace {

TEST(TablesFile, EachBadFileIsOneLineWithFileLineAndField) {
  const BadFiles files = read_bad_files(CORRO_TABLES_SOURCES "/bad_tables.json");
  ASSERT_TRUE(read_tables(files.good, "t").ok()) << read_tables(files.good, "t").status().message();
  for (const BadFile& bad : files.cases) {
    SCOPED_TRACE(bad.what);
    expect_refused(read_tables(bad.text, "tables.yaml").status(), bad.error);
  }
}

TEST(TablesFile, SaysWhatItHolds) {
  const auto tables =
      read_tables(read_bad_files(CORRO_TABLES_SOURCES "/bad_tables.json").good, "t");
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(tables->name, "shop");
  EXPECT_EQ(tables->batch, 4096);
  EXPECT_EQ(tables->ranks, 8);
  EXPECT_EQ(tables->servers, 0);
  EXPECT_EQ(tables->replicas, 1);
  EXPECT_DOUBLE_EQ(tables->step, 0.02);
  EXPECT_EQ(tables->server_memory, 64e9);
  ASSERT_EQ(tables->tables.size(), 2);
  const TableNeed& users = tables->tables[0];
  EXPECT_EQ(users.rows, 2e8);
  EXPECT_EQ(users.optimizer, RowOptimizer::kAdam);
  EXPECT_EQ(users.dtype, RowDType::kBF16);
  EXPECT_EQ(users.distinct, 0.5);
  EXPECT_EQ(users.pinned, std::nullopt);
  EXPECT_EQ(tables->tables[1].pinned, TablePlace::kReplicated);
  EXPECT_EQ(tables->tables[1].ids, 3);
}

TEST(TablesFile, ARowHasItsWeightsAndItsState) {
  const auto bytes = [](RowOptimizer optimizer, RowDType dtype) {
    return row_bytes({.dim = 16, .optimizer = optimizer, .dtype = dtype});
  };
  EXPECT_EQ(bytes(RowOptimizer::kSgd, RowDType::kF32), 64);
  EXPECT_EQ(bytes(RowOptimizer::kSgd, RowDType::kBF16), 32);
  EXPECT_EQ(bytes(RowOptimizer::kMomentum, RowDType::kF32), 128);
  EXPECT_EQ(bytes(RowOptimizer::kAdagrad, RowDType::kF16), 96);
  EXPECT_EQ(bytes(RowOptimizer::kRowwiseAdagrad, RowDType::kF32), 68);
  EXPECT_EQ(bytes(RowOptimizer::kAdam, RowDType::kF32), 196);
  EXPECT_EQ(bytes(RowOptimizer::kFtrl, RowDType::kF32), 192);
}

}  // namespace
}  // namespace corro::plan
