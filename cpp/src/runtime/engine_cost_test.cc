// What one operation costs: when an engine looks at its peers' streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// Takes everything, delivers nothing, and writes down what was asked of it.
class RecordingStream final : public transport::Stream {
 public:
  explicit RecordingStream(std::string& calls) : calls_(calls) {}
  transport::Moved write(std::span<const iovec> pieces) override {
    calls_ += "w";
    return {.bytes = transport::total_size(pieces)};
  }
  transport::Moved read(std::span<const iovec> /*pieces*/) override {
    calls_ += "r";
    return {};
  }
  [[nodiscard]] int poll_fd() const override { return -1; }
  void close() override {}
  [[nodiscard]] std::string describe() const override { return "recording"; }

 private:
  std::string& calls_;
};

std::unique_ptr<Engine> engine_of_two(std::string& calls) {
  EngineOptions options{.rank = 0,
                        .size = 2,
                        .segment = collective::Segment::create(1U << 20U).value(),
                        .peers = {},
                        .wake = [](int32_t) {}};
  options.peers.push_back({.where = "here", .stream = nullptr, .segment = nullptr});
  options.peers.push_back(
      {.where = "there", .stream = std::make_unique<RecordingStream>(calls), .segment = nullptr});
  return Engine::create(std::move(options)).value();
}

TEST(EngineCost, AnOperationSendsBeforeItLooks) {
  std::string calls;
  const auto engine = engine_of_two(calls);
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
  std::string calls;
  const auto engine = engine_of_two(calls);
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

}  // namespace
}  // namespace corro::runtime
