// A board beside a member that leaves in shared memory what no honest one would: in its own section
// and, since it maps that too, in the reader's.
#include "collective/board/board.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collective/board/board_exchange.h"

namespace corro::collective {
namespace {

constexpr uint32_t kLane = 5;
constexpr size_t kArenaBytes = size_t{8} << 20U;

/// Two ranks of this process; each has mapped the other's segment, as two processes would.
class HostileBoard : public testing::Test {
 protected:
  HostileBoard() {
    for (size_t r = 0; r < 2; ++r) segments_[r] = Segment::create(kArenaBytes).value();
    for (size_t r = 0; r < 2; ++r) {
      seen_[r] = Segment::attach(io::Fd(::dup(segments_[1 - r]->fd()))).value();
      stages_[r] = std::make_unique<StagePool>(*segments_[r]);
      boards_[r] = open_board(r);
    }
    for (const auto& board : boards_) EXPECT_EQ(board->missing_member().value(), -1);
  }

  std::unique_ptr<Board> open_board(size_t r) {
    std::vector<Board::Member> members(2);
    for (size_t m = 0; m < 2; ++m) {
      members[m] = {.segment = m == r ? segments_[m].get() : seen_[r].get(),
                    .world_rank = static_cast<int32_t>(10 + m),
                    .pid = getpid()};
    }
    return Board::create(
               {.epoch = 0, .key = kLane}, static_cast<int32_t>(r), std::move(members),
               [](int32_t) {}, *stages_[r])
        .value();
  }

  Line& line_of(size_t r) { return boards_[r]->own().lines[0]; }
  /// What rank `from` says in its table about `to`: 0, what it sends; 1, what it expects.
  void set_table(size_t from, size_t to, size_t index, uint64_t value) {
    std::memcpy(boards_[from]->own().slots[0] + (to * 2 + index) * sizeof value, &value,
                sizeof value);
  }
  /// Both say that `from` sends so much to `to`.
  void agree(size_t from, size_t to, uint64_t count) {
    set_table(from, to, 0, count);
    set_table(to, from, 1, count);
  }
  std::byte* arena_of(size_t r) { return segments_[r]->allocate(kArenaBytes / 4).value(); }
  uint64_t place_in(size_t r, const std::byte* memory) {
    return segments_[r]->offset_of(memory, 1).value();
  }

  std::array<std::unique_ptr<Segment>, 2> segments_, seen_;
  std::array<std::unique_ptr<StagePool>, 2> stages_;
  std::array<std::unique_ptr<Board>, 2> boards_;
};

/// Polls until the operation is over or nothing moves any more.
Progress run(Operation& operation) {
  for (int turn = 0; turn < 10'000; ++turn) {
    const Progress progress = operation.poll(true);
    if (progress != Progress::kMoved) return progress;
  }
  return Progress::kMoved;
}

OpRequest alltoall(std::vector<std::byte>& input, std::vector<std::byte>& output,
                   std::vector<uint64_t> sends, std::vector<uint64_t> takes) {
  return {.kind = OpKind::kAlltoall,
          .input = input.data(),
          .output = output.data(),
          .counts = std::move(takes),
          .send_counts = std::move(sends)};
}

OpRequest reduction(OpKind kind, const std::byte* input, std::byte* output, uint64_t count) {
  return {.kind = kind, .dtype = DType::kF32, .input = input, .output = output, .count = count};
}

// -- words of a failure ---------------------------------------------------------------------------

TEST_F(HostileBoard, AFailureWithoutACodeIsAFailure) {
  boards_[0]->own().failed.store(uint64_t{11} << 8U);
  EXPECT_EQ(boards_[1]->find_failure(0)->code, Code::kUnknown);
  boards_[0]->own().failed.store(uint64_t{11} << 8U | 200U);
  EXPECT_EQ(boards_[1]->find_failure(0)->code, Code::kUnknown);
}

TEST_F(HostileBoard, ACulpritWhoIsNoMemberIsNobody) {
  for (const uint64_t culprit : {uint64_t{0x80000000}, uint64_t{1} << 40U, uint64_t{99}}) {
    boards_[0]->own().failed.store(culprit << 8U | 14U);
    EXPECT_EQ(boards_[1]->find_failure(0)->culprit, -1) << culprit;
  }
  boards_[0]->own().failed.store(uint64_t{12} << 8U | 14U);
  EXPECT_EQ(boards_[1]->find_failure(0)->culprit, 11);
}

TEST_F(HostileBoard, WhoHearsOfALossFromAnotherNamesTheLostRank) {
  boards_[0]->set_failed(Code::kUnavailable, 11);
  const OpRequest request{.kind = OpKind::kBarrier};
  const auto operation = make_board_operation(*boards_[1], 0, request);
  for (int turn = 0; turn < 1000 && operation->poll(true) != Progress::kDone;) ++turn;
  EXPECT_EQ(operation->status().code(), Code::kUnavailable);
  EXPECT_EQ(operation->status().message(), "rank 10 gave the group up: rank 11 was lost");
}

// -- small contributions --------------------------------------------------------------------------

TEST_F(HostileBoard, AgreedSizesAreNotLookedUpInLines) {
  std::array<std::vector<float>, 2> data = {std::vector<float>(100, 1), std::vector<float>(100, 2)};
  std::array<OpRequest, 2> requests;
  for (size_t r = 0; r < 2; ++r) {
    auto* memory = reinterpret_cast<std::byte*>(data[r].data());
    requests[r] = reduction(OpKind::kAllreduce, memory, memory, 100);
  }
  BoardExchange(*boards_[0], 0, requests[0]).publish();
  line_of(0).where = Where::kLine;  // a line holds 32 bytes, not 400
  const auto operation = make_board_operation(*boards_[1], 0, requests[1]);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_EQ(data[1], std::vector<float>(100, 3));
}

TEST_F(HostileBoard, ALargeOperationIsNotTakenFromLinesThatCallThemselvesSmall) {
  std::vector<float> data(10'000, 1);
  auto* memory = reinterpret_cast<std::byte*>(data.data());
  const OpRequest request = reduction(OpKind::kAllreduce, memory, memory, 10'000);
  BoardExchange(*boards_[0], 0, request).publish();
  const auto operation = make_board_operation(*boards_[1], 0, request);
  ASSERT_EQ(operation->poll(false), Progress::kMoved);
  for (size_t r = 0; r < 2; ++r) line_of(r).where = Where::kSlot;
  EXPECT_NE(run(*operation), Progress::kDone);
}

TEST_F(HostileBoard, ABlockThatStartsOutsideOfTheSlotFails) {
  std::vector<std::byte> input(2), output(2);
  const OpRequest honest = alltoall(input, output, {1, 1}, {1, 1});
  BoardExchange(*boards_[0], 0, honest).publish();
  for (const uint64_t start : {uint64_t{kSlotBytes}, uint64_t{1} << 40U}) {
    agree(0, 0, start);
    const auto operation = make_board_operation(*boards_[1], 0, honest);
    ASSERT_EQ(run(*operation), Progress::kDone);
    EXPECT_EQ(operation->status().code(), Code::kDataLoss) << start;
    EXPECT_NE(operation->status().message().find("rank 10"), std::string::npos);
    EXPECT_TRUE(operation->fatal());
  }
}

TEST_F(HostileBoard, ABlockThatEndsOutsideOfTheSlotFails) {
  std::vector<std::byte> input(2), output(20'001);
  BoardExchange(*boards_[0], 0, alltoall(input, output, {1, 1}, {1, 1})).publish();
  set_table(0, 1, 0, 20'000);
  const OpRequest request = alltoall(input, output, {1, 1}, {20'000, 1});
  const auto operation = make_board_operation(*boards_[1], 0, request);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_EQ(operation->status().code(), Code::kDataLoss);
}

TEST_F(HostileBoard, ATableBeyondAllSizesIsRefused) {
  std::vector<std::byte> input(2), output(2);
  const OpRequest honest = alltoall(input, output, {1, 1}, {1, 1});
  BoardExchange(*boards_[0], 0, honest).publish();
  agree(0, 0, UINT64_MAX);
  const auto operation = make_board_operation(*boards_[1], 0, honest);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_EQ(operation->status().code(), Code::kDataLoss);
}

TEST_F(HostileBoard, TheOwnTableIsNotBelievedFromSharedMemory) {
  std::vector<std::byte> input = {std::byte{1}, std::byte{2}}, output(2);
  const OpRequest honest = alltoall(input, output, {1, 1}, {1, 1});
  BoardExchange(*boards_[0], 0, honest).publish();
  const auto operation = make_board_operation(*boards_[1], 0, honest);
  line_of(0).stamp.store(0);
  (void)run(*operation);
  agree(1, 0, 3000);
  line_of(0).stamp.store(1);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_TRUE(operation->status().ok()) << operation->status().message();
  EXPECT_EQ(output[1], std::byte{2});
}

// -- large ones -----------------------------------------------------------------------------------

TEST_F(HostileBoard, ABlockThatStartsOutsideOfTheArenaFails) {
  std::vector<std::byte> private_input(60'000), unused;
  const OpRequest honest = alltoall(private_input, unused, {30'000, 30'000}, {30'000, 30'000});
  std::byte* arena = arena_of(1);
  OpRequest request = honest;
  request.input = arena;
  request.output = arena + 60'000;
  BoardExchange(*boards_[0], 0, honest).publish();
  line_of(0).where = Where::kMapped;
  line_of(0).input_place = place_in(0, arena_of(0));
  agree(0, 0, kArenaBytes);
  const auto operation = make_board_operation(*boards_[1], 0, request);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_EQ(operation->status().code(), Code::kDataLoss);
  EXPECT_NE(operation->status().message().find("rank 10"), std::string::npos);
}

TEST_F(HostileBoard, ARootWhoseResultIsNotMappedGetsNoStores) {
  std::vector<float> data(10'000, 1);
  auto* memory = reinterpret_cast<std::byte*>(data.data());
  BoardExchange(*boards_[0], 0, reduction(OpKind::kReduce, memory, memory, 10'000)).publish();
  line_of(0).where = Where::kCopied;
  line_of(0).input_place = reinterpret_cast<uintptr_t>(memory);
  const OpRequest request = reduction(OpKind::kReduce, arena_of(1), nullptr, 10'000);
  const auto operation = make_board_operation(*boards_[1], 0, request);
  EXPECT_EQ(run(*operation), Progress::kIdle);
  EXPECT_EQ(boards_[1]->own().put.load(), 1U) << "staged";
}

TEST_F(HostileBoard, AFoldFromAnArenaPlaceThatIsNotAlignedIsStaged) {
  std::vector<float> data(10'000, 1);
  auto* memory = reinterpret_cast<std::byte*>(data.data());
  BoardExchange(*boards_[0], 0, reduction(OpKind::kAllreduce, memory, memory, 10'000)).publish();
  std::byte* arena = arena_of(1);
  const OpRequest request = reduction(OpKind::kAllreduce, arena, arena, 10'000);
  line_of(0).where = Where::kMapped;
  line_of(0).input_place = place_in(0, arena_of(0)) + 1;
  line_of(0).output_place = place_in(0, arena_of(0));
  const auto operation = make_board_operation(*boards_[1], 0, request);
  EXPECT_EQ(run(*operation), Progress::kIdle);
  EXPECT_EQ(boards_[1]->own().put.load(), 1U) << "staged";
}

/// A rank that only gives has no result: nothing in shared memory may make it fetch one.
TEST_F(HostileBoard, TheOwnLineIsNotBelievedFromSharedMemory) {
  const OpRequest root = reduction(OpKind::kReduce, arena_of(0), arena_of(0), 10'000);
  const OpRequest giver = reduction(OpKind::kReduce, arena_of(1), nullptr, 10'000);
  BoardExchange(*boards_[0], 0, root).publish();
  const auto operation = make_board_operation(*boards_[1], 0, giver);
  ASSERT_EQ(operation->poll(true), Progress::kMoved);
  line_of(1).where = Where::kCopied;
  boards_[0]->own().finished.store(2);
  ASSERT_EQ(run(*operation), Progress::kDone);
  EXPECT_TRUE(operation->status().ok()) << operation->status().message();
}

// -- memory that cannot be mapped ---------------------------------------------------------------

/// Rank 10's segment has no end, as rank 11 sees it: no process can map all of it.
class EndlessBoard : public HostileBoard {
 protected:
  static constexpr uint64_t kEnd = uint64_t{1} << 62U;
  static constexpr uint64_t kFar = kEnd / 2;

  /// What rank 10 has published until now.
  void show_rank_10() {
    const io::Fd fd = io::create_memfd("corro-segment", kEnd).value();
    std::vector<std::byte> copy(segments_[0]->bytes());
    std::memcpy(copy.data(), &segments_[0]->header(), copy.size());
    std::memcpy(copy.data() + offsetof(SegmentHeader, bytes), &kEnd, sizeof kEnd);
    ASSERT_EQ(pwrite(fd.get(), copy.data(), copy.size(), 0), copy.size());
    boards_[1].reset();
    seen_[1] = Segment::attach(io::Fd(::dup(fd.get()))).value();
    boards_[1] = open_board(1);
  }

  /// Nobody has done anything wrong.
  void expect_an_honest_error(const OpRequest& request) {
    const auto operation = make_board_operation(*boards_[1], 0, request);
    ASSERT_EQ(run(*operation), Progress::kDone);
    EXPECT_EQ(operation->status().code(), Code::kResourceExhausted);
    EXPECT_TRUE(operation->fatal());
    const std::string& message = operation->status().message();
    EXPECT_EQ(message.find("rank 11 cannot reach the shared memory of rank 10: map "), 0U)
        << message;
  }

  std::vector<float> data_ = std::vector<float>(10'000, 1);
  std::byte* memory_ = reinterpret_cast<std::byte*>(data_.data());
  OpRequest sum_ = reduction(OpKind::kAllreduce, memory_, memory_, 10'000);
};

TEST_F(EndlessBoard, ASectionThatCannotBeMappedIsNotAMissingMember) {
  const SectionView& view = boards_[0]->member(0).view;
  const_cast<SectionEntry*>(view.entry)->place.store(kFar);
  show_rank_10();
  expect_an_honest_error(sum_);
  boards_[1]->leave();
  EXPECT_FALSE(boards_[1]->forsaken([](int32_t) { return false; })) << "rank 10 may look at it";
}

TEST_F(EndlessBoard, ABufferThatCannotBeMappedIsNotAWrongPlace) {
  BoardExchange(*boards_[0], 0, sum_).publish();
  line_of(0).where = Where::kMapped;
  line_of(0).input_place = line_of(0).output_place = kFar;
  show_rank_10();
  std::byte* arena = arena_of(1);
  expect_an_honest_error(reduction(OpKind::kAllreduce, arena, arena, 10'000));
}

TEST_F(EndlessBoard, StagesThatCannotBeMappedAreNotAWrongPlace) {
  BoardExchange(*boards_[0], 0, sum_).publish();
  line_of(0).where = Where::kPrivate;
  boards_[0]->own().stages.store(kFar);
  boards_[0]->own().put.store(1);
  show_rank_10();
  expect_an_honest_error(sum_);
}

// -- what a member did last -----------------------------------------------------------------------

TEST_F(HostileBoard, ALineThatIsBeingWrittenIsNotTheLastCall) {
  EXPECT_EQ(boards_[1]->last_operation_of(0), "it has not called anything on this group yet");
  float value = 1;
  auto* memory = reinterpret_cast<std::byte*>(&value);
  const OpRequest request = reduction(OpKind::kAllreduce, memory, memory, 1);
  for (uint64_t op = 0; op < 2; ++op) BoardExchange(*boards_[0], op, request).publish();
  EXPECT_EQ(boards_[1]->last_operation_of(0),
            "its last call on this group was #2 allreduce(f32[1], sum)");
  boards_[0]->own().lines[1].begin({.call = 5, .shape = 6, .extras = 7});
  EXPECT_EQ(boards_[1]->last_operation_of(0),
            "its last call on this group was #1 allreduce(f32[1], sum)");
}

TEST_F(HostileBoard, TheLastCallOfABusyMemberIsNeverAMixture) {
  constexpr uint64_t kCalls = 50'000;
  std::array<float, 8> values{};
  auto* memory = reinterpret_cast<std::byte*>(values.data());
  // Call #n has n % 8 + 1 elements.
  std::thread busy([&] {
    for (uint64_t op = 0; op < kCalls; ++op) {
      const OpRequest request = reduction(OpKind::kAllreduce, memory, memory, (op + 1) % 8 + 1);
      BoardExchange(*boards_[0], op, request).publish();
    }
  });
  std::string last;
  while (!last.starts_with(fmt::format("its last call on this group was #{} ", kCalls))) {
    last = boards_[1]->last_operation_of(0);
    unsigned long long call = 0, elements = 0;
    if (std::sscanf(last.c_str(), "its last call on this group was #%llu allreduce(f32[%llu], sum)",
                    &call, &elements) == 2) {
      EXPECT_EQ(elements, call % 8 + 1) << last;
    } else {
      EXPECT_EQ(last, "it has not called anything on this group yet");
    }
    if (HasFailure()) break;
  }
  busy.join();
}

}  // namespace
}  // namespace corro::collective
