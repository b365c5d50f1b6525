#include "table/service/snapshot_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "table/service/row_snapshot.h"
#include "table/service/snapshot_messages.h"

namespace corro::table {
namespace {

using testing::HasSubstr;

TableSpec spec_of_part() {
  return {.name = "users", .dim = 2, .optimizer = {.kind = OptimizerKind::kAdagrad, .lr = 0.5F}};
}

std::unique_ptr<LocalTable> made_table() {
  auto table = LocalTable::create(spec_of_part()).value();
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
    for (uint64_t key = step; key < 100; key += step) {
      keys.push_back(key);
      gradients.insert(gradients.end(), {1.0F, static_cast<float>(key)});
    }
    EXPECT_TRUE(table->push(keys, gradients, step).ok());
  }
  return table;
}

Bytes file_of(const LocalTable& table) {
  Bytes file = encode_part_head({table.spec(), 3});
  const auto add = [&file](BytesView bytes) {
    const auto frame = frame_of(bytes);
    file.insert(file.end(), frame.begin(), frame.end());
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  RowSnapshot snapshot(table, ShardSet().set(), 3);
  while (const auto page = snapshot.next(300).value()) add(*page);
  add({});
  return file;
}

Status read_in_pieces(RowLoader& loader, BytesView file, size_t piece) {
  PartReader reader(loader);
  while (!file.empty()) {
    const size_t count = std::min(piece, file.size());
    CORRO_TRY(reader.take(file.first(count)));
    file = file.subspan(count);
  }
  return reader.finish();
}

std::vector<float> rows_in(const LocalTable& table) {
  std::vector<uint64_t> keys(110);
  for (uint64_t key = 0; key < keys.size(); ++key) keys[key] = key;
  std::vector<float> values(keys.size() * 2);
  EXPECT_TRUE(table.pull(keys, values).ok());
  return values;
}

LoadOptions wanted_of(const TableSpec& spec) { return {.spec = spec, .shards = ShardSet().set()}; }

TEST(SnapshotPart, IsReadInPiecesOfAnyLength) {
  const auto table = made_table();
  const Bytes file = file_of(*table);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}, file.size()}) {
    RowLoader loader = RowLoader::create(wanted_of(spec_of_part()), {3}).value();
    const Status status = read_in_pieces(loader, file, piece);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto read = loader.take();
    EXPECT_EQ(rows_in(*read), rows_in(*table));
    EXPECT_EQ(file_of(*read), file) << "the optimizer's state, too";
  }
}

TEST(SnapshotPart, GivesEachServerItsShards) {
  const auto table = made_table();
  LoadOptions options = wanted_of(spec_of_part());
  options.shards = {};
  for (size_t shard = 0; shard < kShards; shard += 2) options.shards.set(shard);
  RowLoader loader = RowLoader::create(options, {3}).value();
  ASSERT_TRUE(read_in_pieces(loader, file_of(*table), 1000).ok());
  const auto all = table->keys_with_rows([](uint64_t key) { return shard_of(key) % 2 == 0; });
  EXPECT_EQ(loader.take()->keys_with_rows([](uint64_t) { return true; }), all);
}

TEST(SnapshotPart, CutAnywhereIsDamaged) {
  const Bytes file = file_of(*made_table());
  for (size_t length = 0; length < file.size(); length += 13) {
    RowLoader loader = RowLoader::create(wanted_of(spec_of_part()), {3}).value();
    EXPECT_EQ(read_in_pieces(loader, BytesView(file).first(length), 100).code(), Code::kDataLoss);
  }
}

TEST(SnapshotPart, OfAnotherTableIsRefusedAndNamesWhatDiffers) {
  const Bytes file = file_of(*made_table());
  const auto refusal = [&](const TableSpec& spec, bool weights_only) {
    LoadOptions options = wanted_of(spec);
    options.weights_only = weights_only;
    RowLoader loader = RowLoader::create(options, {3}).value();
    return read_in_pieces(loader, file, 1000);
  };
  TableSpec other = spec_of_part();
  other.dim = 3;
  EXPECT_EQ(refusal(other, true).message(), "table users: dim is 3 here and 2 there");
  other = spec_of_part();
  other.optimizer.kind = OptimizerKind::kAdam;
  EXPECT_EQ(refusal(other, false).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal(other, false).message(), HasSubstr("optimizer.kind is adam here"));
  EXPECT_TRUE(refusal(other, true).ok());
}

TEST(SnapshotPart, IsForTheSameTableWithAnotherBudgetModeOrRate) {
  const Bytes file = file_of(*made_table());
  TableSpec other = spec_of_part();
  other.retention.most_bytes = 1U << 30U;
  other.retention.spill = testing::TempDir();
  other.mode = Mode::kBounded;
  other.staleness = 2;
  other.optimizer.lr *= 2;
  RowLoader loader = RowLoader::create(wanted_of(other), {3}).value();
  const Status status = read_in_pieces(loader, file, 1000);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(rows_in(*loader.take()), rows_in(*made_table()));
}

TEST(SnapshotPart, GivesAnotherOptimizerItsWeightsAndAFreshState) {
  const auto table = made_table();
  TableSpec other = spec_of_part();
  other.optimizer = {.kind = OptimizerKind::kMomentum, .lr = 1.0F, .momentum = 0.5F};
  LoadOptions options = wanted_of(other);
  options.weights_only = true;
  RowLoader loader = RowLoader::create(options, {3}).value();
  ASSERT_TRUE(read_in_pieces(loader, file_of(*table), 1000).ok());
  const auto read = loader.take();
  std::vector<float> expected = rows_in(*table);
  EXPECT_EQ(rows_in(*read), expected);
  const std::vector<uint64_t> key = {6};
  const std::vector<float> gradient = {1.0F, 2.0F};
  ASSERT_TRUE(read->push(key, gradient, 4).ok());
  expected[12] -= 1.0F;
  expected[13] -= 2.0F;
  EXPECT_EQ(rows_in(*read), expected);
}

TEST(SnapshotMessages, AreReadAsTheyWereWritten) {
  Save save{.attempt = 3 << 16U,
            .step = 9,
            .steps = 11,
            .table = 2,
            .part = 1,
            .parts = 4,
            .folder = "/a/b"};
  save.shards.set(7);
  EXPECT_EQ(decode_save(encode_save(save)).value(), save);
  save.counts = true;
  save.base = checkpoint::Base{.step = 5, .checksum = 0x12345678};
  EXPECT_EQ(decode_save(encode_save(save)).value(), save);
  Bytes body = encode_save(save);
  body[36] = std::byte{1};  // A base of none.
  EXPECT_FALSE(decode_save(body).ok());
  save.part = 4;
  EXPECT_FALSE(decode_save(encode_save(save)).ok()) << "there is no such part";
  const Load load{.step = 9, .weights_only = true, .folder = "/a/b"};
  EXPECT_EQ(decode_load(encode_load(load)).value(), load);
  EXPECT_TRUE(decode_saved(encode_saved({5, {}}))->status.ok());
  const Saved failed = decode_saved(encode_saved({5, {Code::kUnavailable, "full"}})).value();
  EXPECT_EQ(failed.attempt, 5U);
  EXPECT_EQ(failed.status.message(), "full");
}

}  // namespace
}  // namespace corro::table
