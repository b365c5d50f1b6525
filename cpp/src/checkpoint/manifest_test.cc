#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace corro::checkpoint {
namespace {

using testing::HasSubstr;

Manifest part_of_rank(uint32_t rank) {
  Manifest part{.step = 7, .world = 2, .values = R"({"lr":0.1,"nested":{"a":[1,null]}})"};
  part.files.push_back({"rank-" + std::to_string(rank) + ".safetensors", 4096 + 32, {rank + 1}});
  part.tensors.push_back({"w", DType::kF32, {4, 4}, {{0, 4096, {{2 * rank, 0}, {2, 4}}}}});
  return part;
}

std::string text_of(const Manifest& manifest) { return manifest_to_text(manifest).value(); }

/// The text with something else in it, and a checksum that is right.
std::string resealed(Manifest manifest, const std::function<void(Manifest&)>& change) {
  change(manifest);
  return text_of(manifest);
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest manifest = merge({part_of_rank(0), part_of_rank(1)}).value();
  EXPECT_EQ(read_manifest(text_of(manifest), "manifest.json").value(), manifest);
  EXPECT_TRUE(text_of(manifest).starts_with(R"({"corro_checkpoint":1,)"));
  EXPECT_EQ(manifest.tensors[0].pieces[1].file, 1U);
  EXPECT_EQ(tensor_bytes(manifest), 64U);
}

TEST(Manifest, AnyChangedOrMissingByteIsFound) {
  const std::string text = text_of(part_of_rank(0));
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      // A digit of the checksum in capitals is the same digit.
      if (read_manifest(changed, "m").ok())
        EXPECT_EQ(read_manifest(changed, "m").value(), part_of_rank(0));
      else
        EXPECT_EQ(read_manifest(changed, "m").status().code(), Code::kDataLoss);
    }
    const auto cut = read_manifest(std::string_view(text).substr(0, i), "m");
    EXPECT_EQ(cut.status().code(), Code::kDataLoss) << i;
  }
}

TEST(Manifest, OneThatNobodyCouldReadIsNotWritten) {
  Manifest manifest = part_of_rank(0);
  manifest.tensors[0].name.assign(size_t{64} << 20U, 'x');
  const auto text = manifest_to_text(manifest);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.status().message(), HasSubstr("more than 64 MiB: it has"));
}

TEST(Manifest, OneThatCannotBeIsRefused) {
  const auto refusal = [](const std::function<void(Manifest&)>& change) {
    const auto read = read_manifest(resealed(part_of_rank(0), change), "m.json");
    return read.ok() ? std::string("accepted") : read.status().message();
  };
  EXPECT_THAT(refusal([](Manifest& m) { m.files[0].name = "../x"; }),
              HasSubstr("must be a file's name, without a folder"));
  EXPECT_THAT(refusal([](Manifest& m) { m.files[0].checksums.clear(); }),
              HasSubstr("m.json: files[0].crc32c: must be 8 digits"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].pieces[0].file = 1; }),
              HasSubstr("tensors[0].pieces[0].file: must be an integer from 0 to 0"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].pieces[0].offset = 4097; }),
              HasSubstr("lies outside of its file"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].pieces[0].box.shape = {5, 4}; }),
              HasSubstr("is not a part of its tensor"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].shape = {int64_t{1} << 61, 8}; }),
              HasSubstr("is too large"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }),
              HasSubstr("has a name twice"));
  EXPECT_THAT(refusal([](Manifest& m) { m.world = 0; }), HasSubstr("world"));
}

TEST(Manifest, ValuesThatAreNoJsonAndNamesThatAreNoUtf8AreRefused) {
  Manifest manifest = part_of_rank(0);
  manifest.values = "{1}";
  EXPECT_EQ(manifest_to_text(manifest).status().code(), Code::kInvalidArgument);
  manifest = part_of_rank(0);
  manifest.tensors[0].name = "\xFF";
  EXPECT_EQ(manifest_to_text(manifest).status().code(), Code::kInvalidArgument);
}

TEST(Merge, RefusesPartsThatDoNotBelongTogether) {
  Manifest other = part_of_rank(1);
  other.step = 8;
  EXPECT_THAT(merge({part_of_rank(0), other}).status().message(),
              HasSubstr("step 8 by 2 ranks cannot be merged with one of step 7"));
  other = part_of_rank(1);
  other.tensors[0].dtype = DType::kF16;
  EXPECT_THAT(merge({part_of_rank(0), other}).status().message(),
              HasSubstr("different shapes or dtypes of the tensor w"));
}

Manifest part_of_table(uint32_t part, uint64_t steps) {
  return {.step = 7,
          .world = 3,
          .files = {{"table-0.part-" + std::to_string(part) + ".rows", 10, {part}}},
          .tables = {{"users", steps, 5 + part, {0}}}};
}

TEST(Merge, PutsATablesPartsBesideThoseOfRanks) {
  const Manifest merged =
      merge({part_of_rank(0), part_of_rank(1), part_of_table(0, 40), part_of_table(1, 40)}).value();
  EXPECT_EQ(merged.world, 2U);
  ASSERT_EQ(merged.tables.size(), 1U);
  EXPECT_EQ(merged.tables[0], (TableEntry{"users", 40, 11, {2, 3}}));
  EXPECT_EQ(read_manifest(text_of(merged), "m").value(), merged);
  EXPECT_THAT(merge({part_of_table(0, 40), part_of_table(1, 41)}).status().message(),
              HasSubstr("parts of the table users are of its steps 40 and 41"));
}

TEST(Merge, KeepsOnWhatATableBuilds) {
  Manifest part = part_of_table(0, 40);
  part.tables[0].base = Base{.step = 30, .checksum = 0xFEDCBA98};
  const Manifest merged = merge({part_of_rank(0), part_of_rank(1), part}).value();
  EXPECT_EQ(merged.tables[0].base, part.tables[0].base);
  EXPECT_EQ(read_manifest(text_of(merged), "m").value(), merged);
  EXPECT_THAT(merge({part, part_of_table(1, 40)}).status().message(),
              HasSubstr("or build on others"));
}

TEST(Manifest, ATableThatCannotBeIsRefused) {
  const auto refusal = [](const std::function<void(Manifest&)>& change) {
    const auto read = read_manifest(resealed(part_of_table(0, 40), change), "m.json");
    return read.ok() ? std::string("accepted") : read.status().message();
  };
  EXPECT_THAT(refusal([](Manifest& m) { m.tables[0].files = {1}; }),
              HasSubstr("tables[0].files[0]: must be the place of a file"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tables.push_back(m.tables[0]); }),
              HasSubstr("tables: has a name twice"));
}

TEST(Merge, RefusesGapsAndOverlaps) {
  EXPECT_THAT(merge({part_of_rank(0)}).status().message(), HasSubstr("tensor w: not all of it"));
  EXPECT_THAT(merge({part_of_rank(0), part_of_rank(0)}).status().message(),
              HasSubstr("tensor w: parts of it overlap"));
}

}  // namespace
}  // namespace corro::checkpoint
