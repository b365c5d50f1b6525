#include "obs/flight_recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace corro::obs {
namespace {

std::unique_ptr<FlightRecorder> make(uint32_t capacity = 8) {
  return std::move(FlightRecorder::create({.rank = 2, .size = 4, .capacity = capacity})).value();
}

TEST(FlightRecorder, ShowsWhoAndWhatAndHowFar) {
  auto recorder = make();
  recorder->steps().set_step(1204);
  const auto handle = recorder->begin({.op_id = 7,
                                       .lane = 3,
                                       .kind = OpKind::kReduce,
                                       .dtype = DType::kBF16,
                                       .reduce_op = ReduceOp::kMax,
                                       .root = 1,
                                       .count = 1000,
                                       .name = "layer.weight"});
  recorder->set_phase(handle, Phase::kTransfer, 3);
  const auto snapshot = recorder->snapshot();
  EXPECT_EQ(snapshot.rank, 2);
  EXPECT_EQ(snapshot.size, 4);
  EXPECT_EQ(snapshot.pid, getpid());
  EXPECT_EQ(snapshot.step, 1204U);
  EXPECT_EQ(snapshot.operations, 1U);
  ASSERT_EQ(snapshot.recent.size(), 1U);
  const auto& op = snapshot.recent[0];
  EXPECT_EQ(op.sequence, 1U);
  EXPECT_EQ(op.op.op_id, 7U);
  EXPECT_EQ(op.op.lane, 3U);
  EXPECT_EQ(op.op.kind, OpKind::kReduce);
  EXPECT_EQ(op.op.dtype, DType::kBF16);
  EXPECT_EQ(op.op.reduce_op, ReduceOp::kMax);
  EXPECT_EQ(op.op.root, 1);
  EXPECT_EQ(op.op.count, 1000U);
  EXPECT_EQ(op.name, "layer.weight");
  EXPECT_EQ(op.phase, Phase::kTransfer);
  EXPECT_EQ(op.waiting_for, 3);
  EXPECT_GT(op.queued_ns, 0U);
  EXPECT_GE(op.started_ns, op.queued_ns);
  EXPECT_EQ(op.done_ns, 0U);
}

TEST(FlightRecorder, TellsWhatHasWaitedLongest) {
  auto recorder = make();
  EXPECT_EQ(longest_wait(recorder->snapshot()), nullptr);
  const auto first =
      recorder->begin({.name = "a"}, Phase::kExchange, Time{std::chrono::seconds(5)});
  recorder->begin({.name = "no one"}, Phase::kTransfer, Time{std::chrono::seconds(1)});
  const auto other =
      recorder->begin({.name = "b"}, Phase::kExchange, Time{std::chrono::seconds(7)});
  recorder->set_phase(first, Phase::kExchange, 1);
  recorder->set_phase(other, Phase::kExchange, 3);
  auto seen = recorder->snapshot();
  ASSERT_NE(longest_wait(seen), nullptr);
  EXPECT_EQ(longest_wait(seen)->name, "a");
  EXPECT_EQ(longest_wait(seen)->started_ns, 5'000'000'000U);
  recorder->end(first, Code::kOk);
  seen = recorder->snapshot();
  EXPECT_EQ(longest_wait(seen)->waiting_for, 3);
}

TEST(FlightRecorder, ShowsAFiringWithItsLane) {
  auto recorder = make();
  const auto handle = recorder->begin(
      {.op_id = 3, .kind = std::nullopt, .name = "F0", .plan_lane = "rank0"}, Phase::kRun);
  recorder->begin({.name = "x", .plan_lane = std::string(100, 'l')});
  auto firing = recorder->snapshot().recent.at(0);
  EXPECT_TRUE(firing.is_firing());
  EXPECT_FALSE(firing.op.kind.has_value());
  EXPECT_EQ(firing.op.op_id, 3U);
  EXPECT_EQ(firing.name, "F0");
  EXPECT_EQ(firing.plan_lane, "rank0");
  EXPECT_EQ(firing.phase, Phase::kRun);
  EXPECT_GT(firing.started_ns, 0U);
  recorder->end(handle, Code::kOk, Time{std::chrono::hours(1'000'000)});
  firing = recorder->snapshot().recent.at(0);
  EXPECT_EQ(firing.phase, Phase::kDone);
  EXPECT_EQ(firing.done_ns, 3'600'000'000'000'000'000U);
  EXPECT_EQ(recorder->snapshot().recent.at(1).plan_lane, std::string(23, 'l'));
}

TEST(FlightRecorder, AQueuedOperationHasNotStarted) {
  auto recorder = make();
  recorder->begin({.op_id = 1});
  const auto snapshot = recorder->snapshot();
  EXPECT_EQ(snapshot.recent.at(0).phase, Phase::kQueued);
  EXPECT_EQ(snapshot.recent.at(0).started_ns, 0U);
  EXPECT_EQ(snapshot.recent.at(0).op.root, -1);
}

TEST(FlightRecorder, AFailedOperationKeepsThePeerItWaitedFor) {
  auto recorder = make();
  const auto failed = recorder->begin({.op_id = 1});
  recorder->set_phase(failed, Phase::kReduce, 3);
  recorder->end(failed, Code::kUnavailable);
  const auto fine = recorder->begin({.op_id = 2});
  recorder->set_phase(fine, Phase::kReduce, 3);
  recorder->end(fine, Code::kOk);
  const auto snapshot = recorder->snapshot();
  EXPECT_EQ(snapshot.recent.at(0).phase, Phase::kFailed);
  EXPECT_EQ(snapshot.recent.at(0).code, Code::kUnavailable);
  EXPECT_EQ(snapshot.recent.at(0).waiting_for, 3);
  EXPECT_EQ(snapshot.recent.at(1).phase, Phase::kDone);
  EXPECT_EQ(snapshot.recent.at(1).waiting_for, -1);
  EXPECT_GT(snapshot.recent.at(1).done_ns, 0U);
}

TEST(FlightRecorder, TheRingKeepsTheNewestOldestFirst) {
  auto recorder = make(4);
  for (uint64_t i = 1; i <= 10; ++i) recorder->begin({.op_id = 100 + i});
  const auto snapshot = recorder->snapshot();
  EXPECT_EQ(snapshot.operations, 10U);
  ASSERT_EQ(snapshot.recent.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(snapshot.recent[i].op.op_id, 107 + i);
}

TEST(FlightRecorder, AHandleOfAnOverwrittenRecordChangesNothing) {
  auto recorder = make(2);
  const auto old = recorder->begin({.op_id = 1});
  recorder->begin({.op_id = 2});
  recorder->begin({.op_id = 3});
  recorder->set_phase(old, Phase::kReduce, 5);
  recorder->end(old, Code::kInternal);
  for (const auto& op : recorder->snapshot().recent) EXPECT_EQ(op.phase, Phase::kQueued);
}

TEST(FlightRecorder, NamesAreCutAndMadePrintable) {
  auto recorder = make();
  recorder->begin({.name = std::string(100, 'x')});
  recorder->begin({.name = "a\x1b[31mb\n"});
  const auto snapshot = recorder->snapshot();
  EXPECT_EQ(snapshot.recent.at(0).name, std::string(31, 'x'));
  EXPECT_EQ(snapshot.recent.at(1).name, "a?[31mb?");
}

TEST(FlightRecorder, RefusesACapacityThatIsNoPowerOfTwo) {
  for (const uint32_t capacity : {0U, 3U, 1000U, 1U << 31U}) {
    EXPECT_EQ(FlightRecorder::create({.capacity = capacity}).status().code(),
              Code::kInvalidArgument)
        << capacity;
  }
}

TEST(FlightRecorder, ItsMemoryIsSealedAndReadOnlyForOthers) {
  auto recorder = make();
  EXPECT_NE(ftruncate(recorder->fd(), 0), 0);
  EXPECT_NE(ftruncate(recorder->fd(), 1 << 20), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, recorder->fd(), 0), MAP_FAILED);
}

/// Every record a reader accepts is one that a writer finished: its fields belong together.
TEST(FlightRecorder, AConcurrentReaderNeverSeesAMixedRecord) {
  auto recorder = make(4);
  std::atomic<bool> stop = false;
  std::jthread writer([&] {
    for (uint64_t i = 1; !stop.load(); ++i) {
      const auto handle =
          recorder->begin({.op_id = i, .root = static_cast<int32_t>(i % 1000), .count = i * 3});
      recorder->set_phase(handle, Phase::kTransfer, 1);
      recorder->end(handle, Code::kOk);
    }
  });
  uint64_t accepted = 0;
  for (int round = 0; round < 3000 || accepted < 1000; ++round) {
    const auto snapshot =
        round % 2 == 0 ? recorder->snapshot() : read_flight(recorder->fd()).value();
    for (const auto& op : snapshot.recent) {
      ASSERT_EQ(op.op.op_id, op.sequence);
      ASSERT_EQ(op.op.count, op.sequence * 3);
      ASSERT_EQ(op.op.root, static_cast<int32_t>(op.sequence % 1000));
      ++accepted;
    }
  }
  stop = true;
}

TEST(FlightRecorder, IsReadThroughADuplicatedDescriptorAfterKill) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  auto recorder = make();
  const int kept = fcntl(recorder->fd(), F_DUPFD_CLOEXEC, 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto handle = recorder->begin({.op_id = 42, .kind = OpKind::kAllgather});
    recorder->set_phase(handle, Phase::kExchange, 1);
    (void)!write(report[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(report[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  recorder.reset();
  const auto snapshot = read_flight(kept);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  ASSERT_EQ(snapshot->recent.size(), 1U);
  EXPECT_EQ(snapshot->recent[0].op.op_id, 42U);
  EXPECT_EQ(snapshot->recent[0].phase, Phase::kExchange);
  EXPECT_EQ(snapshot->recent[0].waiting_for, 1);
  close(kept);
  close(report[0]);
  close(report[1]);
}

}  // namespace
}  // namespace corro::obs
