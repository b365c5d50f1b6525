// A rank that stands still in the middle of an operation and goes on when the others have long
// given it up: their memory is theirs, and it takes nothing of it for a result.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

constexpr int32_t kSize = 3, kLate = 1;
constexpr float kAfterwards = -7;

enum class Path { kLine, kSlot, kPrivate, kStaged, kArena, kStreams, kHosts };

struct Case {
  Path path;
  OpKind kind;
  uint64_t count;
};

class Late : public ::testing::TestWithParam<Case> {
 protected:
  /// The late rank stops after so many rounds; counts where another gave up.
  void expect_untouched(int rounds) {
    const Case& c = GetParam();
    World world({.size = kSize,
                 .seed = static_cast<uint64_t>(rounds) + 1,
                 .board = c.path != Path::kStreams,
                 .hosts = hosts_of(c.path == Path::kHosts ? "001" : ""),
                 .private_reads = c.path != Path::kStaged,
                 .stream_bytes = 4096,
                 .selection = two_level_everywhere()});
    std::vector<std::vector<float>> owned(kSize, std::vector<float>(elements()));
    std::vector<float*> data;
    World::Works works;
    for (int32_t r = 0; r < kSize; ++r) {
      data.push_back(c.path != Path::kArena
                         ? owned[static_cast<size_t>(r)].data()
                         : reinterpret_cast<float*>(
                               world.engine(r).segment()->allocate(elements() * 4).value()));
      std::fill_n(data.back(), elements(), static_cast<float>(r + 1));
      works.push_back(world.submit(r, {request_of(data.back())}));
    }
    world.poll_rounds(rounds);
    world.stop(kLate);
    const auto late = works[kLate];
    works.erase(works.begin() + kLate);
    world.run(works);
    const auto gave_up = [](const auto& work) { return !work->status().ok(); };
    for (const int32_t r : {0, 2})
      std::fill_n(data[static_cast<size_t>(r)], elements(), kAfterwards);
    world.resume(kLate);
    world.run({late});
    world.poll_rounds(300);
    for (const int32_t r : {0, 2}) {
      const float* mine = data[static_cast<size_t>(r)];
      EXPECT_EQ(std::count(mine, mine + elements(), kAfterwards),
                static_cast<std::ptrdiff_t>(elements()))
          << "rank " << r << ", the late one stopped after " << rounds << " rounds";
    }
    const float* its = data[kLate];
    if (late->status().ok()) {
      EXPECT_EQ(std::count(its, its + elements(), kAfterwards), 0)
          << "a result made of what others had already overwritten, after " << rounds << " rounds";
    }
    stopped_inside_ += std::any_of(works.begin(), works.end(), gave_up) ? 1 : 0;
  }
  [[nodiscard]] static uint64_t elements() { return GetParam().count * kSize; }
  [[nodiscard]] static OpRequest request_of(float* data) {
    const Case& c = GetParam();
    OpRequest request{.kind = c.kind, .dtype = DType::kF32, .root = 0, .count = c.count};
    request.input = reinterpret_cast<const std::byte*>(data);
    request.output = reinterpret_cast<std::byte*>(data);
    return request;
  }

  int stopped_inside_ = 0;
};

TEST_P(Late, RanksLeaveAloneWhatOthersHaveTakenBack) {
  for (int rounds = 0; rounds < 24; ++rounds) expect_untouched(rounds);
  EXPECT_GT(stopped_inside_, 0) << "it never stopped inside";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const OpKind kind :
       {OpKind::kAllreduce, OpKind::kReduce, OpKind::kBroadcast, OpKind::kReducescatter}) {
    all.push_back({Path::kLine, kind, 2});
    all.push_back({Path::kSlot, kind, 500});
    for (const Path path :
         {Path::kPrivate, Path::kStaged, Path::kArena, Path::kStreams, Path::kHosts})
      all.push_back({path, kind, kSanitized ? 100'000U : 400'000U});
  }
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  constexpr std::array<const char*, 7> kPaths = {"line",  "slot",    "private", "staged",
                                                 "arena", "streams", "hosts"};
  return fmt::format("{}_{}", kPaths[static_cast<size_t>(info.param.path)],
                     name_of(info.param.kind));
}

INSTANTIATE_TEST_SUITE_P(All, Late, ::testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace corro::testing
