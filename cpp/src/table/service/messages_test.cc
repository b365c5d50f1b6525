#include "table/service/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace corro::table {
namespace {

TableSpec spec() {
  return {.name = "users",
          .dim = 3,
          .dtype = DType::kBF16,
          .seed = 7,
          .optimizer = {.kind = OptimizerKind::kAdam, .lr = 0.5F, .beta1 = 0.25F},
          .initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1},
          .retention = {.least_pushes = 2, .idle_steps = 3, .most_bytes = 4, .spill = "/five"},
          .mode = Mode::kBounded,
          .staleness = 5};
}

Bytes body_of(const Bytes& message) { return {message.begin() + kHeaderBytes, message.end()}; }

TEST(TableMessages, AHeaderIsReadAsItWasWritten) {
  const Header header{.kind = MessageKind::kRows, .table = 513, .request = 70000, .body = 12};
  const auto raw = encode_header(header);
  // Byte by byte as docs/wire.md has it.
  const std::vector<int> expected = {'C', 'T', 'B', '3', 4, 0, 1, 2, 0x70, 0x11, 1, 0, 12, 0, 0, 0};
  EXPECT_TRUE(
      std::ranges::equal(raw, expected, {}, [](std::byte b) { return static_cast<int>(b); }));
  const auto read = decode_header(raw);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->table, 513);
  EXPECT_EQ(read->request, 70000U);
}

TEST(TableMessages, AHeaderOfAnotherKindOrLengthIsRefused) {
  const auto raw = encode_header({.kind = MessageKind::kPull, .body = 8});
  for (const size_t place : {0UL, 3UL, 5UL}) {
    auto other = raw;
    other.at(place) ^= std::byte{1};
    EXPECT_FALSE(decode_header(other).ok()) << place;
  }
  for (const int kind : {0, kLastMessageKind + 1}) {
    auto other = raw;
    other[4] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_header(other).ok()) << kind;
  }
  EXPECT_FALSE(decode_header(encode_header({.body = kMaxBodyBytes + 1})).ok());
  EXPECT_TRUE(decode_header(encode_header({.body = kMaxBodyBytes})).ok());
}

TEST(TableMessages, AnOpenIsReadAsItWasWritten) {
  const Open open{.spec = spec(), .rank = 2, .ranks = 3};
  const Bytes body = encode_open(open);
  const auto read = decode_open(body);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, open);
}

TEST(TableMessages, AnOpenThatIsCutOrLongerIsRefused) {
  Bytes body = encode_open({.spec = spec(), .rank = 0, .ranks = 1});
  for (size_t length = 0; length < body.size(); ++length)
    EXPECT_FALSE(decode_open(BytesView(body).first(length)).ok()) << length;
  body.push_back({});
  EXPECT_FALSE(decode_open(body).ok());
}

TEST(TableMessages, AnOpenOfARankThatThereIsNotIsRefused) {
  EXPECT_FALSE(decode_open(encode_open({.spec = spec(), .rank = 3, .ranks = 3})).ok());
  EXPECT_FALSE(decode_open(encode_open({.spec = spec(), .rank = 0, .ranks = 0})).ok());
}

TEST(TableMessages, APushIsReadAsItWasWritten) {
  const std::vector<uint64_t> keys = {1, UINT64_MAX};
  const PushHead head{
      .step = 4, .version = 7, .first = 1, .rows = 3, .patience_ms = 5, .lr = 0.25F};
  Bytes message = encode_push(9, 10, head, keys, 3);
  const auto gradients = gradients_of(message, keys.size());
  ASSERT_EQ(gradients.size(), 6U);
  for (size_t i = 0; i < 6; ++i) gradients[i] = static_cast<float>(i);
  const Bytes body = body_of(message);
  const auto push = decode_push(body, 3);
  ASSERT_TRUE(push.ok()) << push.status().message();
  EXPECT_EQ(push->head, head);
  EXPECT_TRUE(std::ranges::equal(push->keys, keys));
  EXPECT_EQ(push->gradients[5], 5.0F);
  EXPECT_FALSE(decode_push(body, 4).ok());
}

TEST(TableMessages, KeysThatDoNotAscendAreRefused) {
  for (const auto& keys : {std::vector<uint64_t>{2, 1}, {1, 1}}) {
    EXPECT_FALSE(decode_pull(body_of(encode_pull(0, 0, {}, keys))).ok());
    const Bytes push = encode_push(0, 0, {.step = 1, .rows = 2}, keys, 1);
    EXPECT_FALSE(decode_push(body_of(push), 1).ok());
  }
  const std::vector<uint64_t> ascending = {1, 2};
  EXPECT_TRUE(decode_pull(body_of(encode_pull(0, 0, {}, ascending))).ok());
}

TEST(TableMessages, APartThatIsBehindItsPushIsRefused) {
  const std::vector<uint64_t> keys = {1, 2};
  for (const PushHead head :
       {PushHead{.step = 1, .rows = 1}, PushHead{.step = 1, .first = 3, .rows = 4},
        PushHead{.step = 1, .first = UINT64_MAX, .rows = 4}, PushHead{.step = 0, .rows = 2}})
    EXPECT_FALSE(decode_push(body_of(encode_push(0, 0, head, keys, 1)), 1).ok());
}

TEST(TableMessages, APullIsReadAsItWasWritten) {
  const std::vector<uint64_t> keys = {1, UINT64_MAX};
  const PullHead head{.since = 6, .at_least = 7};
  const Bytes body = body_of(encode_pull(9, 10, head, keys));
  const auto pull = decode_pull(body);
  ASSERT_TRUE(pull.ok());
  EXPECT_EQ(pull->head, head);
  EXPECT_TRUE(std::ranges::equal(pull->keys, keys));
  for (const size_t size : {0UL, 8UL, 17UL})
    EXPECT_FALSE(decode_pull(BytesView(body).first(size)).ok());
}

TEST(TableMessages, RowsAreReadAsTheyWereWritten) {
  const std::vector<uint32_t> changed = {0, 4};
  Bytes message = encode_rows({.table = 9, .request = 10}, 8, 2, 3, changed);
  const auto values = values_of(message, 2, 3);
  for (size_t i = 0; i < 6; ++i) values[i] = static_cast<float>(i);
  const Bytes body = body_of(message);
  const auto rows = decode_rows(body, 5, 3);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->steps, 8U);
  EXPECT_EQ(rows->values[5], 5.0F);
  EXPECT_TRUE(std::ranges::equal(rows->changed, changed));
  // Two rows of two keys, of too few keys, or of another dim.
  EXPECT_FALSE(decode_rows(body, 2, 3).ok());
  EXPECT_FALSE(decode_rows(body, 4, 3).ok());
  EXPECT_FALSE(decode_rows(body, 1, 3).ok());
  EXPECT_FALSE(decode_rows(body, 5, 4).ok());
  EXPECT_FALSE(decode_rows(BytesView(body).first(15), 5, 3).ok());
  const std::vector<uint32_t> twice = {1, 1};
  EXPECT_FALSE(decode_rows(body_of(encode_rows({}, 8, 2, 3, twice)), 5, 3).ok());
  EXPECT_TRUE(decode_rows(body_of(encode_rows({}, 8, 5, 3, {})), 5, 3)->changed.empty());
}

TEST(TableMessages, AnErrorKeepsItsCodeAndText) {
  const Status status = decode_error(encode_error({Code::kNotFound, "no such thing"}));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "no such thing");
  EXPECT_EQ(decode_error({}).code(), Code::kInvalidArgument);
}

ShardSet some_shards() {
  ShardSet shards;
  for (const size_t shard : {size_t{0}, size_t{63}, size_t{64}, kShards - 1}) shards.set(shard);
  return shards;
}

TEST(TableMessages, WhoHoldsWhatIsReadAsItWasWritten) {
  const Holds holds{
      .version = 3,
      .servers = {{0, "10.0.0.1:4711", some_shards()}, {4, "[::1]:5", ~some_shards()}}};
  const Bytes body = encode_holds(holds);
  const auto read = decode_holds(body);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, holds);
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(decode_holds(BytesView(body).first(size)).ok()) << size;
  for (const Holds& other : {Holds{.version = 0, .servers = {}},
                             Holds{.version = 1, .servers = {{1, "", {}}, {1, "", {}}}},
                             Holds{.version = 1, .servers = {{1024, "", {}}}}})
    EXPECT_FALSE(decode_holds(encode_holds(other)).ok());
}

TEST(TableMessages, AnExportIsReadAsItWasWritten) {
  const Export wanted{.shards = some_shards(), .from = 1ULL << 40U, .most_bytes = 99};
  const Bytes body = encode_export(wanted);
  const auto read = decode_export(body);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, wanted);
  EXPECT_FALSE(decode_export(BytesView(body).first(body.size() - 1)).ok());
}

TEST(TableMessages, PackedRowsAreReadAsTheyWereWritten) {
  const std::vector<uint64_t> keys = {2, 3, UINT64_MAX};
  PackedRows rows{.steps = 9, .more = true, .row_bytes = 12, .keys = keys, .rows = {}};
  Bytes body = encode_packed(rows);
  for (size_t i = 0; i < 36; ++i) rows_of(body, rows)[i] = static_cast<std::byte>(i);
  const auto read = decode_packed(body);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->steps, 9U);
  EXPECT_TRUE(read->more);
  EXPECT_EQ(read->row_bytes, 12U);
  EXPECT_TRUE(std::ranges::equal(read->keys, keys));
  ASSERT_EQ(read->rows.size(), 36U);
  EXPECT_EQ(read->rows[35], std::byte{35});
  EXPECT_FALSE(decode_packed(BytesView(body).first(body.size() - 1)).ok());
  const std::vector<uint64_t> not_ascending = {3, 2};
  rows.keys = not_ascending;
  EXPECT_FALSE(decode_packed(encode_packed(rows)).ok());
  rows.keys = {};  // And yet there are more.
  EXPECT_FALSE(decode_packed(encode_packed(rows)).ok());
}

}  // namespace
}  // namespace corro::table
