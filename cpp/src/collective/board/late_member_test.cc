// What a member of a board still does to the others after they have given an operation up: it may
// have been stopped between any two instructions.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <unistd.h>

#include "collective/board/board_exchange.h"

namespace corro::collective {
namespace {

constexpr size_t kHeapBytes = size_t{32} << 20U;
constexpr uint64_t kElements =
    1'000'003;                    ///< Of f32: a slice takes several polls, the end no page.
constexpr float kAfterwards = 7;  ///< What the program does with its memory after a failure.

/// Two ranks of this process; each has mapped the other's segment, as two processes would.
class LateMember : public testing::TestWithParam<OpKind> {
 protected:
  LateMember() {
    for (size_t r = 0; r < 2; ++r) {
      segments_[r] = Segment::create(kHeapBytes).value();
      stages_[r] = std::make_unique<StagePool>(*segments_[r]);
      memory_[r] = reinterpret_cast<float*>(segments_[r]->allocate(kHeapBytes / 2).value());
    }
    for (size_t r = 0; r < 2; ++r)
      seen_[r] = Segment::attach(io::Fd(::dup(segments_[1 - r]->fd()))).value();
    for (size_t r = 0; r < 2; ++r) boards_[r] = open_board(r);
    for (const auto& board : boards_) EXPECT_EQ(board->missing_member().value(), -1);
  }

  std::unique_ptr<Board> open_board(size_t r) {
    std::vector<Board::Member> members(2);
    for (size_t m = 0; m < 2; ++m) {
      members[m] = {.segment = m == r ? segments_[m].get() : seen_[r].get(),
                    .world_rank = static_cast<int32_t>(m),
                    .pid = getpid()};
    }
    return Board::create(
               {.epoch = 0, .key = 5}, static_cast<int32_t>(r), std::move(members), [](int32_t) {},
               *stages_[r])
        .value();
  }

  /// In place at rank r's arena, from element `start` on; filled with r + 1.
  OpRequest request_of(size_t r, size_t start, uint64_t count) {
    std::fill_n(memory_[r] + start, count, static_cast<float>(r + 1));
    auto* data = reinterpret_cast<std::byte*>(memory_[r] + start);
    return {
        .kind = GetParam(), .dtype = DType::kF32, .input = data, .output = data, .count = count};
  }

  /// Rank 0 gives its operation up, as the engine does, and uses all of its memory for other
  /// things.
  void give_up(Operation& operation) {
    boards_[0]->set_failed(Code::kDeadlineExceeded, 1);
    operation.abandon();
    std::fill_n(memory_[0], kHeapBytes / 2 / sizeof(float), kAfterwards);
  }
  [[nodiscard]] uint64_t overwritten() const {
    const uint64_t all = kHeapBytes / 2 / sizeof(float);
    return all - static_cast<uint64_t>(std::count(memory_[0], memory_[0] + all, kAfterwards));
  }

  std::array<std::unique_ptr<Segment>, 2> segments_, seen_;
  std::array<std::unique_ptr<StagePool>, 2> stages_;
  std::array<std::unique_ptr<Board>, 2> boards_;
  std::array<float*, 2> memory_{};
};

/// The path alone, which looks at no failure: as if it was stopped after its last look.
TEST_P(LateMember, StoresIntoNoMemoryOfAMemberThatHasGivenUp) {
  for (int polls = 0; polls < 3; ++polls) {
    const uint64_t op = static_cast<uint64_t>(polls);
    const size_t start = op * kElements;  // what was given up before is not shared any more
    const std::array<OpRequest, 2> requests = {request_of(0, start + 5, kElements),
                                               request_of(1, start + 3, kElements)};
    const auto operation = make_board_operation(*boards_[0], op, requests[0]);
    (void)operation->poll(true);
    BoardExchange late(*boards_[1], op, requests[1]);
    late.publish();
    const auto path = make_direct_path(late).value();
    for (int i = 0; i < polls; ++i) (void)path->poll(true);
    give_up(*operation);
    while (path->poll(true) == Progress::kMoved) {
    }
    EXPECT_EQ(overwritten(), 0U) << "stopped after " << polls << " polls";
  }
}

TEST_P(LateMember, StoresIntoNoMemoryOfAMemberThatHadOnlyOfferedIt) {
  const std::array<OpRequest, 2> requests = {request_of(0, 5, kElements),
                                             request_of(1, 3, kElements)};
  const auto operation = make_board_operation(*boards_[0], 0, requests[0]);
  (void)operation->poll(true);
  give_up(*operation);
  BoardExchange late(*boards_[1], 0, requests[1]);
  late.publish();
  const auto path = make_direct_path(late).value();
  while (path->poll(true) == Progress::kMoved) {
  }
  EXPECT_EQ(overwritten(), 0U);
}

/// It could take for a result what the other has put into the buffers since.
TEST_P(LateMember, DoesNotSucceedWithWhatAFailedMemberHasWrittenSince) {
  const std::array<OpRequest, 2> requests = {request_of(0, 5, kElements),
                                             request_of(1, 3, kElements)};
  std::array<std::unique_ptr<Operation>, 2> operations;
  for (size_t r = 0; r < 2; ++r) operations[r] = make_board_operation(*boards_[r], 0, requests[r]);
  (void)operations[0]->poll(true);
  (void)operations[1]->poll(true);
  for (int i = 0; i < 10; ++i) (void)operations[0]->poll(true);  // its own part is made
  ASSERT_EQ(boards_[0]->own().finished.load(), 2U);
  give_up(*operations[0]);
  Progress progress = Progress::kMoved;
  for (int i = 0; i < 100 && progress != Progress::kDone; ++i) progress = operations[1]->poll(true);
  ASSERT_EQ(progress, Progress::kDone);
  EXPECT_EQ(operations[1]->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(overwritten(), 0U);
}

/// Rank 0 is through with the first operation and leaves in the middle of the second.
TEST_P(LateMember, KeepsTheResultOfAMemberThatCompletedItAndLeft) {
  const std::array<OpRequest, 2> requests = {request_of(0, 5, kElements),
                                             request_of(1, 3, kElements)};
  std::array<std::unique_ptr<Operation>, 2> operations;
  for (size_t r = 0; r < 2; ++r) operations[r] = make_board_operation(*boards_[r], 0, requests[r]);
  (void)operations[0]->poll(true);
  // Until all bytes are where they belong, and rank 1 has still to see it.
  for (Progress now = Progress::kMoved; now != Progress::kDone;) {
    if (boards_[1]->own().finished.load() < 2) (void)operations[1]->poll(true);
    now = operations[0]->poll(true);
  }
  ASSERT_TRUE(operations[0]->status().ok());
  boards_[0]->set_completed(1);
  const auto second = make_board_operation(*boards_[1], 1, requests[1]);
  (void)second->poll(true);
  boards_[0]->set_failed(Code::kUnavailable, 0);

  Progress progress = Progress::kMoved;
  for (int i = 0; i < 100 && progress != Progress::kDone; ++i) progress = operations[1]->poll(true);
  ASSERT_EQ(progress, Progress::kDone);
  EXPECT_TRUE(operations[1]->status().ok()) << operations[1]->status().to_string();
  for (int i = 0; i < 1000 && second->poll(true) != Progress::kDone;) ++i;
  EXPECT_EQ(second->status().code(), Code::kUnavailable);
}

/// Edges and whole pages come together to the same result wherever the buffers begin and end.
TEST_P(LateMember, IsRightWhereverBuffersBeginAndEnd) {
  uint64_t op = 0;
  for (const size_t start : {0U, 1U, 1023U, 1024U, 1500U}) {
    for (const uint64_t count : {5'000U, 6'144U, 8'191U, 300'001U}) {
      const std::array<OpRequest, 2> requests = {request_of(0, start, count),
                                                 request_of(1, 2 * start, count)};
      const std::array<std::unique_ptr<Operation>, 2> operations = {
          make_board_operation(*boards_[0], op, requests[0]),
          make_board_operation(*boards_[1], op, requests[1])};
      std::array<bool, 2> done{};
      for (int i = 0; i < 100 && !(done[0] && done[1]); ++i) {
        for (size_t r = 0; r < 2; ++r)
          done[r] = done[r] || operations[r]->poll(true) == Progress::kDone;
      }
      ASSERT_TRUE(done[0] && done[1]);
      ++op;
      for (size_t r = 0; r < 2; ++r) {
        boards_[r]->set_completed(op);
        if (GetParam() == OpKind::kReduce && r == 1) continue;
        const float* data = memory_[r] + (r + 1) * start;
        EXPECT_EQ(std::count(data, data + count, 3.0F), static_cast<std::ptrdiff_t>(count))
            << "rank " << r << ", from " << start << ", " << count;
      }
    }
  }
}

TEST_P(LateMember, LeavesMemoryThatIsStillGoodForPrivateUse) {
  const OpRequest request = request_of(0, 0, kElements);
  const auto operation = make_board_operation(*boards_[0], 0, request);
  (void)operation->poll(true);
  boards_[0]->set_failed(Code::kDeadlineExceeded, 1);
  operation->abandon();
  EXPECT_EQ(std::count(memory_[0], memory_[0] + kElements, 1.0F), std::ptrdiff_t{kElements})
      << "nothing had been stored there";
  EXPECT_FALSE(segments_[0]->offset_of(request.output, kElements * sizeof(float)));
  segments_[0]->free(reinterpret_cast<std::byte*>(memory_[0]));
  std::byte* fresh = segments_[0]->allocate(kHeapBytes / 4).value();
  EXPECT_NE(fresh, reinterpret_cast<std::byte*>(memory_[0]));
  EXPECT_TRUE(segments_[0]->offset_of(fresh, kHeapBytes / 4));
}

INSTANTIATE_TEST_SUITE_P(All, LateMember, testing::Values(OpKind::kAllreduce, OpKind::kReduce),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace corro::collective
