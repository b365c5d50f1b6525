#include "collective/board/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace corro::collective {
namespace {

constexpr size_t kWindow = Segment::kWindowBytes;

/// Address space in which this process has segments mapped, own ones too.
size_t mapped_bytes() {
  size_t bytes = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:corro-segment") == std::string::npos) continue;
    const size_t dash = line.find('-');
    bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line, nullptr, 16);
  }
  return bytes;
}

/// A peer's segment that is larger than any address space.
io::Fd endless_segment() {
  constexpr size_t kBytes = size_t{1} << 62U;
  io::Fd fd = io::create_memfd("corro-segment", kBytes).value();
  constexpr std::array<uint64_t, 2> kStart = {kSegmentMagic, kBytes};
  EXPECT_EQ(pwrite(fd.get(), kStart.data(), sizeof kStart, 0), sizeof kStart);
  return fd;
}

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
  EXPECT_EQ(*seen->at(own->offset_of(memory, 100).value() + 99, 1).value(), std::byte{7});
}

TEST(Segment, WhatIsTakenOfTheHeapIsAMetric) {
  const obs::Metrics metrics;
  const auto taken = [&metrics] { return metrics.value(obs::Metric::kArenaBytes); };
  const auto own = Segment::create(size_t{1} << 20U, metrics).value();
  EXPECT_EQ(taken(), 0U);
  std::byte* memory = own->allocate(5000).value();
  EXPECT_EQ(taken(), 8192U) << "whole pages";
  EXPECT_FALSE(own->allocate(size_t{1} << 21U).ok());
  EXPECT_EQ(taken(), 8192U);
  own->free(memory);
  EXPECT_EQ(taken(), 0U);
}

TEST(Segment, OfAPeersSegmentIsMappedWhatIsUsed) {
  const auto own = Segment::create(size_t{1} << 32U).value();
  const size_t before = mapped_bytes();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  EXPECT_EQ(mapped_bytes() - before, kWindow);
  EXPECT_NE(seen->at(kWindow - 1, 1).value(), nullptr);
  EXPECT_EQ(mapped_bytes() - before, kWindow);
  EXPECT_NE(seen->at(kWindow, 1).value(), nullptr);
  EXPECT_EQ(mapped_bytes() - before, 3 * kWindow);
  EXPECT_NE(seen->at(2 * kWindow - 1, 1).value(), nullptr);
  EXPECT_EQ(mapped_bytes() - before, 3 * kWindow);
  EXPECT_NE(seen->at(8192, 4 * kWindow).value(), nullptr);
  EXPECT_EQ(mapped_bytes() - before, 11 * kWindow);
  EXPECT_NE(seen->at(own->bytes() - 1, 1).value(), nullptr);
  EXPECT_EQ(mapped_bytes() - before, 11 * kWindow + own->bytes()) << "no further than its end";
}

TEST(Segment, ARangeAcrossTheWindowsEndIsOnePiece) {
  const auto own = Segment::create(4 * kWindow).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  std::byte* memory = own->allocate(2 * kWindow).value();
  const uint64_t start = own->offset_of(memory, 2 * kWindow).value();
  for (size_t i = 0; i < 2 * kWindow; i += 4096) memory[i] = static_cast<std::byte>(i / 4096 % 251);
  const std::byte* across = seen->at(start, 2 * kWindow).value();
  EXPECT_EQ(std::memcmp(across, memory, 2 * kWindow), 0);
  EXPECT_EQ(seen->at(start, 2 * kWindow).value(), across) << "the same range, the same address";
}

TEST(Segment, WhatWasFoundBeforeStaysWhereItIs) {
  const auto own = Segment::create(8 * kWindow).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  std::byte* memory = own->allocate(3 * kWindow).value();
  const uint64_t start = own->offset_of(memory, 1).value();
  const std::array<std::byte*, 3> found = {seen->at(start, 1).value(),
                                           seen->at(start, kWindow + 1).value(),
                                           seen->at(start, 2 * kWindow + 1).value()};
  memory[0] = std::byte{42};
  for (const std::byte* place : found) EXPECT_EQ(*place, std::byte{42});
  *found[2] = std::byte{43};
  EXPECT_EQ(memory[0], std::byte{43});
}

TEST(Segment, RangesOutsideOfTheHeapAreRefusedAndNotMapped) {
  const auto own = Segment::create(4 * kWindow).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  const size_t before = mapped_bytes();
  const size_t bytes = own->bytes();
  for (const Segment* segment : {own.get(), seen.get()}) {
    for (const auto& [offset, size] :
         std::vector<std::pair<uint64_t, size_t>>{{0, 1},
                                                  {8191, 1},
                                                  {bytes, 1},
                                                  {bytes - 1, 2},
                                                  {bytes + 1, 0},
                                                  {8192, bytes - 8191},
                                                  {8192, SIZE_MAX},
                                                  {kWindow, SIZE_MAX - kWindow + 1},
                                                  {UINT64_MAX, 1}}) {
      EXPECT_EQ(segment->at(offset, size).value(), nullptr) << offset << " " << size;
    }
  }
  EXPECT_EQ(mapped_bytes(), before);
}

TEST(Segment, ThreadsThatLookFurtherAtOnceShareAView) {
  const auto own = Segment::create(16 * kWindow).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  std::byte* memory = own->allocate(3 * kWindow).value();
  memory[0] = std::byte{7};
  const uint64_t start = own->offset_of(memory, 1).value();
  const size_t before = mapped_bytes();
  constexpr size_t kThreads = 4;
  std::array<std::byte*, kThreads> found{};
  std::barrier together(kThreads);
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      together.arrive_and_wait();
      found[t] = seen->at(start, 2 * kWindow).value();
      EXPECT_EQ(*found[t], std::byte{7});
    });
  }
  threads.clear();
  EXPECT_EQ(std::count(found.begin(), found.end(), found[0]), kThreads);
  EXPECT_EQ(mapped_bytes() - before, 4 * kWindow);
}

TEST(Segment, WhatCannotBeMappedIsAnErrorOfItsOwn) {
  const auto seen = Segment::attach(endless_segment()).value();
  const auto refused = seen->at(seen->bytes() - 1, 1);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("map 4611686018427387904 bytes of shared memory"),
            std::string::npos)
      << refused.status().message();
  EXPECT_NE(seen->at(kWindow, 1).value(), nullptr) << "what can be mapped still is";
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
    const auto found = seen->find_section(key_of(lane % 2, lane)).value();
    ASSERT_TRUE(found) << lane;
    EXPECT_EQ(found->section->completed.load(), lane);
    EXPECT_FALSE(seen->find_section(key_of(1 - lane % 2, lane)).value()) << lane;
  }
  const auto found = seen->find_section({.epoch = 1, .key = 299}).value().value();
  own->hide_section(views.back());
  EXPECT_FALSE(Segment::names(found));
  EXPECT_FALSE(seen->find_section({.epoch = 1, .key = 299}).value());
  own->free_section(views.back());
  EXPECT_EQ(own->open_section({.epoch = 0, .key = 7}, "[0]").value().place, views.back().place);
}

TEST(Segment, ATableThatLeadsRoundInACircleEnds) {
  const auto own = Segment::create(size_t{1} << 20U).value();
  uint64_t first = 4096;  // outside of the heap, so no table
  std::memcpy(reinterpret_cast<std::byte*>(&own->header()) + 4096, &first, sizeof first);
  EXPECT_FALSE(own->find_section({.epoch = 0, .key = 1}).value());
  std::byte* table = own->allocate(4096).value();
  const uint64_t itself = own->offset_of(table, 1).value();
  for (std::byte* next : {reinterpret_cast<std::byte*>(&own->header()) + 4096, table})
    std::memcpy(next, &itself, sizeof itself);
  EXPECT_FALSE(own->find_section({.epoch = 0, .key = 1}).value());
}

/// Forks with these segments held as the fork handlers hold them; returns the child's status.
template <typename InChild>
int fork_with(Segment& segment, const InChild& in_child) {
  segment.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    segment.after_fork_in_child();
    _exit(in_child());
  }
  segment.after_fork_in_parent();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Segment, WhatAForkedChildStoresIsItsOwn) {
  const auto segment = Segment::create(64 * kWindow).value();
  const auto peer = Segment::attach(io::Fd(dup(segment->fd()))).value();
  constexpr size_t kBytes = 16 * 4096;
  std::array<std::byte*, 3> blocks{};
  for (std::byte*& block : blocks) block = segment->allocate(kBytes).value();
  segment->free(blocks[1]);  // So that used ranges do not touch.
  for (std::byte* block : {blocks[0], blocks[2]}) std::memset(block, 1, kBytes);
  // In the midst of a block: pages that were private before.
  ASSERT_TRUE(segment->set_apart(blocks[2] + 4096, 4096).ok());
  std::memset(blocks[2] + 4096, 2, 4096);

  EXPECT_EQ(fork_with(*segment,
                      [&] {
                        const bool kept = blocks[0][0] == std::byte{1} &&
                                          blocks[2][4096] == std::byte{2} &&
                                          blocks[2][8192] == std::byte{1};
                        for (std::byte* block : {blocks[0], blocks[2]})
                          std::memset(block, 7, kBytes);
                        return kept && segment->allocate(4096).ok() ? 0 : 1;
                      }),
            0);
  const uint64_t place = *segment->offset_of(blocks[0], 1);
  EXPECT_EQ(*peer->at(place, 1).value(), std::byte{1});
  for (size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(blocks[0][i], std::byte{1}) << i;
    ASSERT_EQ(blocks[2][i], i / 4096 == 1 ? std::byte{2} : std::byte{1}) << i;
  }
  *blocks[0] = std::byte{3};
  EXPECT_EQ(*peer->at(place, 1).value(), std::byte{3}) << "the parent's is shared as before";
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
