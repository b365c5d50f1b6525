#include "collective/board/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace corro::collective {
namespace {

LaneKey key_of(uint64_t epoch, uint64_t key) {
  return {.epoch = static_cast<uint32_t>(epoch), .key = key};
}

TEST(Segment, APeersSegmentShowsWhatItsOwnerWrites) {
  const auto own = Segment::create(size_t{1} << 20U).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  EXPECT_EQ(seen->bytes(), own->bytes());
  own->header().sleeping.store(kAsleep);
  EXPECT_EQ(seen->header().sleeping.load(), kAsleep);
  std::byte* memory = own->allocate(100).value();
  memory[99] = std::byte{7};
  EXPECT_EQ(*seen->at(own->offset_of(memory, 100).value() + 99, 1), std::byte{7});
}

TEST(Segment, SectionsAreFoundHoweverManyThereAre) {
  const auto own = Segment::create(size_t{400} << 20U).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  std::vector<SectionView> views;
  for (uint64_t lane = 0; lane < 300; ++lane) {
    views.push_back(own->open_section(key_of(lane % 2, lane), "[0]").value());
    views.back().section->completed.store(lane);
  }
  for (uint64_t lane = 0; lane < 300; ++lane) {
    const auto found = seen->find_section(key_of(lane % 2, lane));
    ASSERT_TRUE(found) << lane;
    EXPECT_EQ(found->section->completed.load(), lane);
    EXPECT_FALSE(seen->find_section(key_of(1 - lane % 2, lane))) << lane;
  }
  const auto found = seen->find_section({.epoch = 1, .key = 299}).value();
  own->hide_section(views.back());
  EXPECT_FALSE(Segment::names(found));
  EXPECT_FALSE(seen->find_section({.epoch = 1, .key = 299}));
  own->free_section(views.back());
  EXPECT_EQ(own->open_section({.epoch = 0, .key = 7}, "[0]").value().place, views.back().place);
}

TEST(Segment, ATableThatLeadsRoundInACircleEnds) {
  const auto own = Segment::create(size_t{1} << 20U).value();
  uint64_t first = 4096;  // outside of the heap, so no table
  std::memcpy(reinterpret_cast<std::byte*>(&own->header()) + 4096, &first, sizeof first);
  EXPECT_FALSE(own->find_section({.epoch = 0, .key = 1}));
  std::byte* table = own->allocate(4096).value();
  const uint64_t itself = own->offset_of(table, 1).value();
  for (std::byte* next : {reinterpret_cast<std::byte*>(&own->header()) + 4096, table})
    std::memcpy(next, &itself, sizeof itself);
  EXPECT_FALSE(own->find_section({.epoch = 0, .key = 1}));
}

/// Its owner could cut it short under the reader, who would die of SIGBUS.
TEST(Segment, UnsealedMemoryOfAPeerIsRefused) {
  io::Fd fd(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 1 << 30), 0);
  EXPECT_EQ(Segment::attach(std::move(fd)).status().code(), Code::kPermissionDenied);
}

TEST(Segment, MemoryOfAnotherKindIsRefused) {
  io::Fd large = io::create_memfd("other", size_t{1} << 30U).value();
  EXPECT_EQ(Segment::attach(std::move(large)).status().code(), Code::kDataLoss);
  io::Fd small = io::create_memfd("other", 4096).value();
  EXPECT_EQ(Segment::attach(std::move(small)).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace corro::collective
