#include "checkpoint/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/sample_checkpoint.h"
#include "io/files.h"

namespace corro::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_text(const std::string& path) {
  return io::read_file(path, size_t{1} << 30U).value();
}

/// Reads a rank's file as safetensors describes it, without the manifest.
nlohmann::json safetensors_header(const std::string& text) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8U | static_cast<uint8_t>(text[i]);
  return nlohmann::json::parse(text.substr(8, length));
}

TEST(Reader, AnyBoxIsReadWhateverTheNumberOfRanksThatHaveWritten) {
  RealDisk disk;
  std::mt19937 random(5);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (const uint32_t world : {1U, 2U, 3U, 5U, 8U}) {
    const std::string root = fresh_folder("boxes", /*on_disk=*/true);
    ASSERT_TRUE(write_sample(disk, root, 3, world).ok());
    EXPECT_TRUE(check_sample(root, 3).ok()) << check_sample(root, 3).message();
    const Opened opened = Opened::open(root, 3).value();
    EXPECT_EQ(opened.manifest().world, world);
    EXPECT_EQ(opened.manifest().values, R"({"at":1.5})");
    const auto weight = std::ranges::find(opened.manifest().tensors, "weight", &TensorEntry::name);
    const std::vector<std::byte> whole = sample_bytes(0, 3);
    for (int round = 0; round < 30; ++round) {
      Box box{{below(400), below(1000)}, {0, 0}};
      box.shape = {below(400 - box.offsets[0]) + 1, below(1000 - box.offsets[1]) + 1};
      std::vector<std::byte> expected(elements_of(box.shape) * 4);
      for (const Stretch& one : stretches_between(whole_of({400, 1000}), box, 4))
        std::memcpy(expected.data() + one.to, whole.data() + one.from, one.bytes);
      std::vector<std::byte> read(expected.size());
      const auto index = static_cast<size_t>(weight - opened.manifest().tensors.begin());
      ASSERT_TRUE(opened.read({{index, box, read.data()}}).ok());
      EXPECT_TRUE(read == expected);
    }
  }
}

TEST(Reader, EachRanksFileIsASafetensorsFile) {
  RealDisk disk;
  const std::string root = fresh_folder("safetensors");
  ASSERT_TRUE(write_sample(disk, root, 3, 2).ok());
  const std::string text = file_text(root + "/step-3/rank-1.safetensors");
  const nlohmann::json header = safetensors_header(text);
  // Boxes follow each other without a gap, and the last one ends the file.
  std::map<uint64_t, uint64_t> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (!entry.contains("data_offsets")) continue;
    const uint64_t from = entry["data_offsets"][0];
    const uint64_t to = entry["data_offsets"][1];
    if (from < to) ranges[from] = to;
  }
  uint64_t end = 0;
  for (const auto& [from, to] : ranges) {
    EXPECT_EQ(from, end);
    end = to;
  }
  EXPECT_EQ((text.size() - end) % kPageBytes, 0U);
  EXPECT_TRUE(header.contains("__metadata__'")) << "a tensor may have the name of what is reserved";
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
}

TEST(Reader, CheckpointsAreListedNewestFirstAndOthersAreLeftAlone) {
  RealDisk disk;
  const std::string root = fresh_folder("list");
  for (const char* name : {"step-x", "step-07", "step-", "step-9.partial-1", "other"})
    std::filesystem::create_directories(root + "/" + name);
  for (const uint64_t step : {2U, 10U}) ASSERT_TRUE(write_sample(disk, root, step, 1).ok());
  EXPECT_THAT(steps_in(root).value(), ElementsAre(10, 2));
  EXPECT_EQ(steps_in(root + "/no").status().code(), Code::kNotFound);
}

TEST(Reader, ACheckpointOfTheSameStepIsReplaced) {
  RealDisk disk;
  const std::string root = fresh_folder("replaced");
  ASSERT_TRUE(write_sample(disk, root, 5, 2).ok());
  ASSERT_TRUE(write_sample(disk, root, 5, 3).ok());
  EXPECT_EQ(Opened::open(root, 5)->manifest().world, 3U);
  EXPECT_THAT(names_in(root).value(), ElementsAre("step-5"));
}

TEST(Reader, OldCheckpointsGoAndLaterOnesStay) {
  RealDisk disk;
  const std::string root = fresh_folder("old");
  for (const uint64_t step : {9U, 1U, 2U, 3U}) ASSERT_TRUE(write_sample(disk, root, step, 1).ok());
  EXPECT_THAT(steps_in(root).value(), ElementsAre(9, 3, 2));
}

TEST(Reader, FlippedBitsAreFoundAndAnOlderCheckpointIsLeft) {
  RealDisk disk;
  const std::string root = fresh_folder("flips");
  for (const uint64_t step : {1U, 2U}) ASSERT_TRUE(write_sample(disk, root, step, 2).ok());
  std::mt19937 random(9);
  for (const char* name : {"manifest.json", "rank-0.safetensors", "rank-1.safetensors"}) {
    const std::string path = root + "/step-2/" + name;
    const std::string text = file_text(path);
    for (int round = 0; round < 40; ++round) {
      std::string changed = text;
      const size_t at = random() % text.size();
      // Bit 5 of a letter tells capitals: the manifest's checksum may have them.
      changed[at] = static_cast<char>(changed[at] ^ (1 << (random() % 5)));
      std::ofstream(path, std::ios::binary) << changed;
      const Status status = check_sample(root, 2);
      EXPECT_EQ(status.code(), Code::kDataLoss) << name << " at " << at << status.message();
      EXPECT_THAT(status.message(), HasSubstr(path));
      EXPECT_EQ(newest_valid(root), 1U);
    }
    std::ofstream(path, std::ios::binary) << text;
  }
  EXPECT_EQ(newest_valid(root), 2U);
}

TEST(Reader, FilesThatAreCutLongerOrMissingAreFound) {
  RealDisk disk;
  const std::string root = fresh_folder("cut");
  ASSERT_TRUE(write_sample(disk, root, 2, 2).ok());
  std::mt19937 random(13);
  for (const char* name : {"manifest.json", "rank-0.safetensors", "rank-1.safetensors"}) {
    const std::string path = root + "/step-2/" + name;
    const std::string text = file_text(path);
    for (int round = 0; round < 10; ++round) {
      std::ofstream(path, std::ios::binary) << text.substr(0, random() % text.size());
      EXPECT_EQ(Opened::open(root, 2).status().code(), Code::kDataLoss);
    }
    std::ofstream(path, std::ios::binary) << text << "x";
    EXPECT_EQ(Opened::open(root, 2).status().code(), Code::kDataLoss);
    std::filesystem::remove(path);
    EXPECT_EQ(Opened::open(root, 2).status().code(), Code::kDataLoss);
    std::ofstream(path, std::ios::binary) << text;
  }
  EXPECT_TRUE(check_sample(root, 2).ok());
}

TEST(Lock, OneJobAtATimeWritesIntoAFolder) {
  const std::string root = fresh_folder("lock");
  {
    const auto lock = FolderLock::take(root);
    ASSERT_TRUE(lock.ok());
    const Status second = FolderLock::take(root).status();
    EXPECT_EQ(second.code(), Code::kFailedPrecondition);
    EXPECT_THAT(second.message(), HasSubstr("another job writes checkpoints here"));
  }
  EXPECT_TRUE(FolderLock::take(root).ok());
}

}  // namespace
}  // namespace corro::checkpoint
