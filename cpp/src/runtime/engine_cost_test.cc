// What one operation costs: when an engine looks at its peers' streams.
#include <gtest/gtest.h>

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

TEST(EngineCost, AnOperationSendsBeforeItLooks) {
  std::string calls;
  EngineOptions options{.rank = 0,
                        .size = 2,
                        .segment = collective::Segment::create(1U << 20U).value(),
                        .peers = {},
                        .wake = [](int32_t) {}};
  options.peers.push_back({.where = "here", .stream = nullptr, .segment = nullptr});
  options.peers.push_back(
      {.where = "there", .stream = std::make_unique<RecordingStream>(calls), .segment = nullptr});
  const auto engine = Engine::create(std::move(options)).value();
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

}  // namespace
}  // namespace corro::runtime
