// Codecs through whole engines: on the board, over streams and over several hosts; folded as they
// are, and gathered; with names, joins and failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "runtime/named_group.h"
#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::cast_codec;
using collective::Codec;
using collective::OpRequest;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Buffers = std::vector<std::vector<float>>;

/// Keeps the first element of each eight: small forms cannot be added up.
class FirstOfEight final : public Codec {
 public:
  explicit FirstOfEight(int fails_from = 1 << 30) : fails_from_(fails_from) {}
  [[nodiscard]] std::string_view name() const override { return "first of eight"; }
  [[nodiscard]] bool applies_to(DType dtype) const override { return dtype == DType::kF32; }
  [[nodiscard]] std::optional<DType> folds_as() const override { return std::nullopt; }
  [[nodiscard]] uint64_t encoded_bytes(DType /*dtype*/, uint64_t count) const override {
    return (count + 7) / 8 * sizeof(float);
  }
  [[nodiscard]] Status encode(DType /*dtype*/, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    if (calls_++ >= fails_from_) return {Code::kInternal, "the codec is out of order"};
    for (uint64_t i = 0; i < count; i += 8)
      std::memcpy(into + i / 8 * sizeof(float), from + i * sizeof(float), sizeof(float));
    return {};
  }
  [[nodiscard]] Status decode(DType /*dtype*/, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    std::memset(into, 0, count * sizeof(float));
    for (uint64_t i = 0; i < count; i += 8)
      std::memcpy(into + i * sizeof(float), from + i / 8 * sizeof(float), sizeof(float));
    return {};
  }

 private:
  const int fails_from_;
  mutable int calls_ = 0;
};

OpRequest request(std::vector<float>& data, std::shared_ptr<const Codec> codec,
                  ReduceOp op = ReduceOp::kSum) {
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  return {.kind = OpKind::kAllreduce,
          .dtype = DType::kF32,
          .reduce_op = op,
          .input = bytes,
          .output = bytes,
          .count = data.size(),
          .codec = std::move(codec)};
}

struct Where {
  const char* name;
  WorldOptions options;
};

class CodecsTest : public ::testing::TestWithParam<Where> {
 protected:
  [[nodiscard]] int32_t size() const { return GetParam().options.size; }
  /// Rank r has r + 1 + i % 7 at place i.
  [[nodiscard]] Buffers buffers(size_t count) const {
    Buffers made(static_cast<size_t>(size()), std::vector<float>(count));
    for (size_t r = 0; r < made.size(); ++r) {
      for (size_t i = 0; i < count; ++i) made[r][i] = static_cast<float>(r + 1 + i % 7);
    }
    return made;
  }
  [[nodiscard]] float sum_at(size_t i) const {
    const int32_t n = size();
    return static_cast<float>(n * (n + 1) / 2 + n * static_cast<int32_t>(i % 7));
  }

  World world_{GetParam().options};
};

TEST_P(CodecsTest, CastsAreFoldedAsTheyAre) {
  for (const size_t count : {size_t{1}, size_t{100}, size_t{70'000}}) {
    for (const DType into : {DType::kF16, DType::kBF16}) {
      Buffers data = buffers(count);
      const auto results = world_.run_all([&](int32_t r) {
        OpRequest made = request(data[static_cast<size_t>(r)], cast_codec(into));
        made.prescale = 0.5;
        made.postscale = 2;
        return made;
      });
      for (const Status& status : results) ASSERT_TRUE(status.ok()) << status.to_string();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[0][i], sum_at(i)) << i;
      EXPECT_THAT(data, Each(data[0]));
    }
  }
}

TEST_P(CodecsTest, ResultsAreRoundedAsTheSmallDtypeIs) {
  Buffers data(static_cast<size_t>(size()), std::vector<float>(1, 1.0F + 1.0F / 4096));
  for (const Status& status : world_.run_all([&](int32_t r) {
         return request(data[static_cast<size_t>(r)], cast_codec(DType::kBF16), ReduceOp::kAverage);
       }))
    ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(data, Each(std::vector<float>{1.0F}));
}

TEST_P(CodecsTest, WhatCannotBeFoldedIsGathered) {
  const auto codec = std::make_shared<FirstOfEight>();
  for (const size_t count : {size_t{1}, size_t{100}, size_t{70'000}}) {
    Buffers data = buffers(count);
    for (const Status& status : world_.run_all([&](int32_t r) {
           OpRequest made = request(data[static_cast<size_t>(r)], codec, ReduceOp::kAverage);
           made.prescale = static_cast<double>(size());
           return made;
         }))
      ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[0][i], i % 8 == 0 ? sum_at(i) : 0) << i;
    EXPECT_THAT(data, Each(data[0]));
  }
}

TEST_P(CodecsTest, RanksWithDifferentCodecsDisagree) {
  Buffers data = buffers(100);
  const auto results = world_.run_all([&](int32_t r) {
    return request(data[static_cast<size_t>(r)], cast_codec(r == 0 ? DType::kF16 : DType::kBF16));
  });
  for (const Status& status : results) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("ranks disagree"));
  }
}

TEST_P(CodecsTest, ABufferThatIsMissingIsAnErrorAsWithoutACodec) {
  Buffers data = buffers(100);
  const auto results = world_.run_all([&](int32_t r) {
    OpRequest made = request(data[static_cast<size_t>(r)], cast_codec(DType::kF16));
    made.input = made.output = nullptr;
    return made;
  });
  for (const Status& status : results)
    EXPECT_THAT(status.message(), HasSubstr("no input buffer")) << status.to_string();
}

TEST_P(CodecsTest, ACodecThatFailsEndsTheGroupEverywhere) {
  Buffers data = buffers(100);
  const auto sound = std::make_shared<FirstOfEight>();
  const auto broken = std::make_shared<FirstOfEight>(0);
  const auto results = world_.run_all(
      [&](int32_t r) { return request(data[static_cast<size_t>(r)], r == 1 ? broken : sound); });
  for (const Status& status : results)
    EXPECT_THAT(status.message(), HasSubstr("out of order")) << status.to_string();
}

OpRequest named(OpRequest made, const std::string& name) {
  made.name = name;
  return made;
}

World::Works submit_named(World& world, Buffers& data, const std::string& name,
                          const std::vector<std::shared_ptr<const Codec>>& codecs) {
  World::Works works;
  for (int32_t r = 0; r < world.size(); ++r) {
    const auto codec = codecs[static_cast<size_t>(r) % codecs.size()];
    if (codec == nullptr) continue;
    works.push_back(std::make_shared<runtime::WorkState>(
        std::vector<OpRequest>{named(request(data[static_cast<size_t>(r)], codec), name)}));
    works.back()->named = true;
    runtime::Engine& engine = world.engine(r);
    engine.submit(engine.world(), works.back(), world.now());
  }
  return works;
}

TEST_P(CodecsTest, NamedOperationsOfOneCodecShareBuckets) {
  std::array<Buffers, 8> data;
  World::Works works;
  for (size_t i = 0; i < data.size(); ++i) {
    data.at(i) = buffers(10);
    const DType into = i % 2 == 0 ? DType::kF16 : DType::kBF16;
    for (auto& work : submit_named(world_, data.at(i), "t" + std::to_string(i), {cast_codec(into)}))
      works.push_back(work);
  }
  world_.run(works);
  for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
  for (const Buffers& each : data) {
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(each[0][i], sum_at(i));
    EXPECT_THAT(each, Each(each[0]));
  }
}

TEST_P(CodecsTest, NamedOperationsSayWhichCodecsDiffer) {
  Buffers data = buffers(10);
  const auto works =
      submit_named(world_, data, "g", {cast_codec(DType::kF16), cast_codec(DType::kBF16)});
  world_.run(works);
  for (const auto& work : works)
    EXPECT_THAT(work->status().message(), AllOf(HasSubstr("codec f16"), HasSubstr("codec bf16")));
}

TEST_P(CodecsTest, AJoinedRankHasAnIdentityForCorrosOwnCodecsAlone) {
  int32_t last = -1;
  const auto join = runtime::make_join_work(&last, Duration::zero());
  runtime::Engine& one = world_.engine(1);
  one.submit(one.world(), join, world_.now());
  std::vector<std::shared_ptr<const Codec>> codecs(static_cast<size_t>(size()),
                                                   cast_codec(DType::kF16));
  codecs[1] = nullptr;
  Buffers data = buffers(10);
  auto works = submit_named(world_, data, "g", codecs);
  world_.run(works);
  for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(data[0][i], sum_at(i) - static_cast<float>(2 + i % 7));

  for (auto& codec : codecs) codec = codec ? std::make_shared<FirstOfEight>() : nullptr;
  works = submit_named(world_, data, "h", codecs);
  world_.run(works);
  for (const auto& work : works) EXPECT_FALSE(work->status().ok());
}

INSTANTIATE_TEST_SUITE_P(Everywhere, CodecsTest,
                         ::testing::Values(Where{"Board", {.size = 3}},
                                           Where{"Streams", {.size = 3, .board = false}},
                                           Where{"Hosts", {.size = 4, .hosts = hosts_of("0011")}}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace corro::testing
