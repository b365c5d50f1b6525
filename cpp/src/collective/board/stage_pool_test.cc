// Lanes of a rank that lend each other the memory in which they stage: who may have it when, and
// how much of it there is.
#include "collective/board/stage_pool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "collective/board/board.h"

namespace corro::collective {
namespace {

/// Two ranks of this process with several lanes; neither may read the other's private memory.
class StagePoolTest : public testing::Test {
 protected:
  static constexpr uint64_t kElements = 300'000;  ///< Of f32: ten chunks.
  static constexpr size_t kLanes = 4;

  StagePoolTest() {
    for (size_t r = 0; r < 2; ++r) {
      segments_[r] = Segment::create(size_t{32} << 20U).value();
      pools_[r] = std::make_unique<StagePool>(*segments_[r]);
    }
    for (size_t r = 0; r < 2; ++r)
      seen_[r] = Segment::attach(io::Fd(::dup(segments_[1 - r]->fd()))).value();
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      for (size_t r = 0; r < 2; ++r) boards_[r][lane] = open_board(r, lane);
      for (size_t r = 0; r < 2; ++r) EXPECT_EQ(boards_[r][lane]->missing_member().value(), -1);
    }
    sections_ = committed(0);
  }

  std::unique_ptr<Board> open_board(size_t r, uint64_t lane) {
    std::vector<Board::Member> members(2);
    for (size_t m = 0; m < 2; ++m) {
      members[m] = {.segment = m == r ? segments_[m].get() : seen_[r].get(),
                    .world_rank = static_cast<int32_t>(m)};
    }
    return Board::create(
               {.epoch = 0, .key = lane}, static_cast<int32_t>(r), std::move(members),
               [](int32_t) {}, *pools_[r])
        .value();
  }

  /// A sum of both ranks' private memory.
  struct Sum {
    std::array<std::vector<float>, 2> data;
    std::array<OpRequest, 2> requests;
    std::array<std::unique_ptr<Operation>, 2> operations;
    std::array<bool, 2> over{};
  };
  void begin(Sum& sum, size_t lane, uint64_t op) {
    for (size_t r = 0; r < 2; ++r) {
      sum.data[r].assign(kElements, static_cast<float>(lane + 10 * op + r));
      auto* data = reinterpret_cast<std::byte*>(sum.data[r].data());
      sum.requests[r] = {.kind = OpKind::kAllreduce,
                         .dtype = DType::kF32,
                         .input = data,
                         .output = data,
                         .count = kElements};
      sum.operations[r] = make_board_operation(*boards_[r][lane], op, sum.requests[r]);
    }
  }
  /// Polls a rank's part; true once it is over.
  bool poll(Sum& sum, size_t r) {
    sum.over[r] = sum.over[r] || sum.operations[r]->poll(true) == Progress::kDone;
    return sum.over[r];
  }
  void end(Sum& sum, size_t lane, uint64_t op, size_t r) {
    const auto value = static_cast<float>(2 * (lane + 10 * op) + 1);
    EXPECT_TRUE(sum.operations[r]->status().ok()) << sum.operations[r]->status().to_string();
    EXPECT_EQ(std::count(sum.data[r].begin(), sum.data[r].end(), value),
              static_cast<std::ptrdiff_t>(kElements));
    boards_[r][lane]->set_completed(op + 1);
  }
  /// Polls both parts until both are over, or `first` is set and one is; that one, or -1.
  int run(Sum& sum, bool first) {
    for (int i = 0; i < 1'000; ++i) {
      for (const size_t r : {0U, 1U}) {
        if (poll(sum, r) && first) return static_cast<int>(r);
      }
      if (sum.over[0] && sum.over[1]) return -1;
    }
    ADD_FAILURE() << "it does not end";
    return -1;
  }
  void run(size_t lane, uint64_t op) {
    Sum sum;
    begin(sum, lane, op);
    (void)run(sum, false);
    for (size_t r = 0; r < 2; ++r) end(sum, lane, op, r);
  }
  [[nodiscard]] uint64_t committed(size_t r) const {
    struct stat status{};
    EXPECT_EQ(fstat(segments_[r]->fd(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
  /// How many Stages a rank has.
  [[nodiscard]] double stages(size_t r) const {
    return (static_cast<double>(committed(r)) - static_cast<double>(sections_)) / sizeof(Stages);
  }

  std::array<std::unique_ptr<Segment>, 2> segments_, seen_;
  std::array<std::unique_ptr<StagePool>, 2> pools_;
  std::array<std::array<std::unique_ptr<Board>, kLanes>, 2> boards_;
  uint64_t sections_ = 0;  ///< Bytes of a segment without stages.
};

TEST_F(StagePoolTest, LanesLendOneAreaToEachOther) {
  for (uint64_t op = 0; op < 3; ++op) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      run(lane, op);
      for (const size_t r : {0U, 1U}) EXPECT_EQ(stages(r), 1) << "lane " << lane << ", #" << op;
    }
  }
}

TEST_F(StagePoolTest, AnAreaStaysWhileAMemberIsStillInTheOperation) {
  Sum sum;
  begin(sum, 0, 0);
  const auto early = static_cast<size_t>(run(sum, true));
  ASSERT_FALSE(sum.over[1 - early]);
  end(sum, 0, 0, early);
  run(1, 0);
  EXPECT_EQ(stages(early), 2);
  (void)run(sum, false);
  end(sum, 0, 0, 1 - early);
  run(2, 0);
  EXPECT_EQ(stages(early), 2) << "either of them is idle";
}

TEST_F(StagePoolTest, AnAreaOfAFailedLaneStaysUntilNobodyCanLookAtIt) {
  Sum sum;
  begin(sum, 0, 0);
  while (stages(0) == 0) {
    for (const size_t r : {0U, 1U}) (void)poll(sum, r);
  }
  ASSERT_FALSE(sum.over[0]);
  sum.operations[0]->abandon();
  boards_[0][0]->set_failed(Code::kDeadlineExceeded, 1);
  for (const size_t r : {0U, 1U}) boards_[r][0]->set_completed(1);
  run(1, 0);
  EXPECT_EQ(stages(0), 2) << "the other rank's counter is not looked at after an error";
  const auto gone = [](int32_t) { return false; };
  for (const size_t r : {0U, 1U}) boards_[r][0]->leave();
  ASSERT_TRUE(boards_[0][0]->forsaken(gone));
  boards_[0][0].reset();
  run(2, 0);
  run(1, 1);
  EXPECT_LE(stages(0), 2) << "it is lent again";
}

TEST_F(StagePoolTest, AreasThatLanesNeededAtOnceAreFreedAfterwards) {
  std::array<Sum, kLanes> sums;
  for (size_t lane = 0; lane < kLanes; ++lane) begin(sums[lane], lane, 0);
  for (int i = 0; i < 3; ++i) {  // The lanes of both ranks wait for each other crosswise.
    for (size_t lane = 0; lane < kLanes; ++lane) {
      (void)poll(sums[lane], 0);
      (void)poll(sums[kLanes - 1 - lane], 1);
    }
  }
  EXPECT_EQ(stages(0), kLanes);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    (void)run(sums[lane], false);
    for (const size_t r : {0U, 1U}) end(sums[lane], lane, 0, r);
  }
  run(0, 1);
  for (const size_t r : {0U, 1U})
    EXPECT_EQ(stages(r) * sizeof(Stages), StagePool::kMostKeptBytes) << "rank " << r;
}

TEST_F(StagePoolTest, ALanesLargeAreaIsNotLentTwiceAndSmallOnesAre) {
  StagePool& pool = *pools_[0];
  Board& board = *boards_[0][0];
  const StagePool::Area* large = pool.lend(board, 0, kSmallAreaBytes + 1).value();
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(pool.lend(board, 1, kSmallAreaBytes + 1).value(), nullptr);
  EXPECT_NE(pool.lend(*boards_[0][1], 0, kSmallAreaBytes + 1).value(), large);
  const StagePool::Area* small = pool.lend(board, 1, 100).value();
  EXPECT_NE(pool.lend(board, 2, 100).value(), small);
  for (const size_t r : {0U, 1U}) boards_[r][0]->set_completed(2);
  EXPECT_EQ(pool.lend(board, 3, kSmallAreaBytes + 1).value(), large);
  EXPECT_EQ(pool.lend(board, 3, 100).value(), small);
}

}  // namespace
}  // namespace corro::collective
