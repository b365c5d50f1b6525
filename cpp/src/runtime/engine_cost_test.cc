// What one operation costs: when an engine looks at its peers' streams.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "io/fd.h"
#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// Takes everything, delivers nothing, and writes down what was asked of it.
class RecordingStream final : public transport::Stream {
 public:
  explicit RecordingStream(std::string& calls) : calls_(calls) {}
  transport::Moved write(std::span<const iovec> pieces) override {
    calls_ += 'w';
    return {.bytes = transport::total_size(pieces)};
  }
  transport::Moved read(std::span<const iovec> /*pieces*/) override {
    calls_ += 'r';
    return {};
  }
  [[nodiscard]] int poll_fd() const override { return descriptor_.get(); }
  void close() override {}
  [[nodiscard]] std::string describe() const override { return "recording"; }

 private:
  std::string& calls_;
  io::Fd descriptor_{eventfd(0, EFD_CLOEXEC)};  // As a socket's: each look is a system call.
};

/// Every other rank has a stream of its own, which writes in its string of `calls`.
std::unique_ptr<Engine> engine_of(std::vector<std::string>& calls) {
  EngineOptions options{.rank = 0,
                        .size = static_cast<int32_t>(calls.size()) + 1,
                        .segment = collective::Segment::create(256U << 20U).value(),
                        .peers = {},
                        .wake = [](int32_t) {}};
  options.peers.push_back({.where = "here", .host = "here", .segment = nullptr, .stream = nullptr});
  for (std::string& of_peer : calls) {
    options.peers.push_back({.where = "there",
                             .host = "there",
                             .segment = nullptr,
                             .stream = std::make_unique<RecordingStream>(of_peer)});
  }
  return Engine::create(std::move(options)).value();
}

TEST(EngineCost, AnOperationSendsBeforeItLooks) {
  std::vector<std::string> of_peers(1);
  std::string& calls = of_peers.front();
  const auto engine = engine_of(of_peers);
  auto work = std::make_shared<WorkState>(std::vector{collective::OpRequest{}});
  const Time now = monotonic_now();
  (void)engine->poll(now);
  calls.clear();
  engine->submit(engine->world(), work, now);
  (void)engine->poll(now);
  EXPECT_EQ(calls, "w");
  (void)engine->poll(now);
  EXPECT_EQ(calls, "wr");
}

TEST(EngineCost, ItLooksAlsoWhileSomethingIsLaunchedInEveryPass) {
  std::vector<std::string> of_peers(1);
  std::string& calls = of_peers.front();
  const auto engine = engine_of(of_peers);
  Group* alone = engine->create_group({0}).value();
  const Time now = monotonic_now();
  const auto submit = [&](Group& group) {
    engine->submit(group, std::make_shared<WorkState>(std::vector{collective::OpRequest{}}), now);
    (void)engine->poll(now);
  };
  submit(engine->world());
  calls.clear();
  for (int i = 0; i < 100; ++i) submit(*alone);
  EXPECT_GE(std::ranges::count(calls, 'r'), 50);
}

TEST(EngineCost, APeerThatOwesNothingIsNotLookedAt) {
  std::vector<std::string> calls(15);
  const auto engine = engine_of(calls);
  // As a driver's epoll would say: one of them has something to read.
  engine->peers().ask_readable = [](Peers& peers) { peers.mark_readable(1); };
  Time now = monotonic_now();
  std::byte received{};
  collective::OpRequest request{.kind = OpKind::kRecv, .dtype = DType::kU8, .root = 1};
  request.output = &received;
  request.count = 1;
  engine->submit(engine->world(), std::make_shared<WorkState>(std::vector{request}), now);
  (void)engine->poll(now);
  for (std::string& of_peer : calls) of_peer.clear();
  for (int i = 0; i < 1000; ++i) {
    now = now + std::chrono::microseconds(1);
    (void)engine->poll(now);
  }
  EXPECT_GE(std::ranges::count(calls.front(), 'r'), 100) << "what it waits for";
  for (size_t peer = 1; peer < calls.size(); ++peer) {
    EXPECT_EQ(calls[peer], "") << "peer " << peer + 1 << " owes nothing";
  }
}

/// How often the engine has looked for something to move, and at a group while it did.
struct Polls {
  explicit Polls(Engine& engine)
      : of_engine(engine.recorder().metrics().value(obs::Metric::kPolls)),
        of_groups(engine.recorder().metrics().value(obs::Metric::kGroupPolls)) {}
  uint64_t of_engine, of_groups;
};

TEST(EngineCost, IdleGroupsAreNotLookedAt) {
  std::vector<std::string> nobody;
  const auto engine = engine_of(nobody);
  std::vector<Group*> groups;
  for (int i = 0; i < 200; ++i) groups.push_back(engine->create_group({0}).value());
  Time now = monotonic_now();
  const auto run = [&](Group& group, bool named) {
    std::vector<collective::OpRequest> barrier(1);
    barrier.front().name = named ? "a" : "";
    auto work = std::make_shared<WorkState>(std::move(barrier));
    work->named = named;
    engine->submit(group, work, now);
    for (int i = 0; i < 100 && !work->done(); ++i) {
      now = now + std::chrono::microseconds(1);
      (void)engine->poll(now);
    }
    EXPECT_TRUE(work->done() && work->status().ok()) << work->status().to_string();
  };
  for (const bool named : {false, true}) {
    for (Group* group : groups) run(*group, named);  // Each has been active once.
    (void)engine->poll(now);
    const Polls before(*engine);
    for (int turn = 0; turn < 100; ++turn) run(*groups[123], named);
    for (int i = 0; i < 100; ++i) (void)engine->poll(now);
    const Polls after(*engine);
    EXPECT_GT(after.of_engine, before.of_engine + 100);
    EXPECT_LE(after.of_groups - before.of_groups, after.of_engine - before.of_engine);
  }
}

TEST(EngineCost, AGroupIsLookedAtAsLongAsSomethingIsInFlight) {
  std::vector<std::string> calls(1);
  const auto engine = engine_of(calls);
  std::vector<Group*> groups;
  for (int i = 0; i < 100; ++i) groups.push_back(engine->create_group({0, 1}).value());
  const Time now = monotonic_now();
  for (const int i : {3, 70}) {
    engine->submit(*groups[static_cast<size_t>(i)],
                   std::make_shared<WorkState>(std::vector{collective::OpRequest{}}), now);
  }
  const Polls before(*engine);
  for (int i = 0; i < 1000; ++i) (void)engine->poll(now);
  const Polls after(*engine);
  EXPECT_EQ(after.of_groups - before.of_groups, 2 * (after.of_engine - before.of_engine));
}

}  // namespace
}  // namespace corro::runtime
