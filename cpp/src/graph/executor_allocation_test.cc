// Counts every call of operator new while a plan and one-shots run: steady state makes none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "graph/executor.h"

namespace {
size_t g_allocations = 0;  // The test's own thread only.
}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(bytes);
}
void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace corro::graph {
namespace {

class Recorder final : public Lane {
 public:
  Recorder() { tickets.reserve(16); }
  void start(Time, const Work& work) override { tickets.push_back(work.firing.ticket); }
  void complete_all(Executor& executor) {
    for (const Ticket ticket : tickets) executor.complete(ticket);
    tickets.clear();
  }
  std::vector<Ticket> tickets;
};

TEST(Allocations, CounterCounts) {
  const size_t before = g_allocations;
  auto memory = std::make_unique<std::vector<int>>(3);
  EXPECT_EQ(g_allocations, before + 2);
}

TEST(Allocations, NoneForAFiring) {
  Plan plan;
  plan.add_lane({.name = "gpu"});
  plan.add_lane({.name = "dp", .order = LaneOrder::kAgreed, .depth = 2});
  const ChannelId bucket = plan.add_channel({.name = "bucket", .slots = 2});
  const ChannelId reduced = plan.add_channel({.name = "reduced", .slots = 2, .initial = 1});
  plan.add_service({.name = "cell", .lane = 0, .inputs = {reduced}, .outputs = {bucket}});
  plan.add_service({.name = "allreduce", .lane = 1, .inputs = {bucket}, .outputs = {reduced}});
  Recorder gpu, communicator;
  auto executor = Executor::create(plan, {&gpu, &communicator});
  ASSERT_TRUE(executor.ok());
  (*executor)->run_until(10000);
  const size_t before = g_allocations;
  while ((*executor)->poll({})) {
    gpu.complete_all(**executor);
    communicator.complete_all(**executor);
  }
  EXPECT_EQ(g_allocations, before);
  EXPECT_TRUE((*executor)->reached());
}

TEST(Allocations, NoneForAOneShotOnceTheHighWaterMarkIsKnown) {
  Recorder communicator;
  auto created = Executor::create({}, {});
  ASSERT_TRUE(created.ok());
  Executor& executor = **created;
  const LaneId lane =
      executor.add_lane({.name = "dp", .order = LaneOrder::kAgreed, .depth = 4}, communicator);
  size_t done = 0;
  const auto round = [&] {
    for (int i = 0; i < 32; ++i) {
      const auto ticket = executor.submit(
          lane, {.name = "allreduce", .launch = {}, .on_done = [&done](const Status&) { ++done; }});
      ASSERT_TRUE(ticket.ok());
    }
    while (executor.poll({})) communicator.complete_all(executor);
  };
  round();
  const size_t before = g_allocations;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(g_allocations, before);
  EXPECT_EQ(done, 101U * 32U);
}

TEST(Allocations, NoneForAOneShotThatTheCallerRunsItself) {
  Recorder communicator;
  auto created = Executor::create({}, {});
  ASSERT_TRUE(created.ok());
  Executor& executor = **created;
  const LaneId lane = executor.add_lane({.name = "dp", .order = LaneOrder::kAgreed}, communicator);
  const size_t before = g_allocations;
  for (int i = 0; i < 100; ++i) executor.complete(executor.try_begin(lane).value());
  EXPECT_EQ(g_allocations, before);
  EXPECT_TRUE(executor.idle());
}

}  // namespace
}  // namespace corro::graph
