// Adasum through whole engines: on every path, with any number of ranks, against its definition;
// the same bits on every rank and on every path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "device/reduce.h"
#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Vector = std::vector<double>;

Vector reference_of_two(const Vector& a, const Vector& b) {
  double a_a = 0, a_b = 0, b_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    a_a += a[i] * a[i];
    a_b += a[i] * b[i];
    b_b += b[i] * b[i];
  }
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = (a_a == 0 ? 1 : 1 - a_b / a_a / 2) * a[i] + (b_b == 0 ? 1 : 1 - a_b / b_b / 2) * b[i];
  }
  return sum;
}

/// Folds the first pairs until a power of two is left, then neighbours until one is left.
Vector reference(std::vector<Vector> vectors) {
  const size_t power = std::bit_floor(vectors.size());
  const auto fold = [&vectors](size_t i) {
    vectors[i] = reference_of_two(vectors[i], vectors[i + 1]);
    vectors.erase(vectors.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  };
  for (size_t i = 0; vectors.size() > power; ++i) fold(i);
  while (vectors.size() > 1)
    for (size_t i = 0; i < vectors.size(); ++i) fold(i);
  return vectors[0];
}

Vector contribution(int32_t rank, uint64_t count, uint64_t seed = 0) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) * 100 + count + seed);
  std::normal_distribution<double> normal(0.3);
  Vector values(count);
  for (double& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> cast(const Vector& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  device::cast(DType::kF64, reinterpret_cast<const std::byte*>(values.data()), dtype, bytes.data(),
               values.size());
  return bytes;
}

Vector cast_back(const std::vector<std::byte>& bytes, DType dtype) {
  Vector values(bytes.size() / size_of(dtype));
  device::cast(dtype, bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()),
               values.size());
  return values;
}

/// In one comparison: gtest's own would take most of the time, for each of so many values.
void expect_near(const Vector& got, const Vector& want, double slack, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  if (want.empty()) return;
  size_t at = 0;
  while (at + 1 < want.size() && std::abs(got[at] - want[at]) <= slack) ++at;
  ASSERT_NEAR(got[at], want[at], slack) << what << ", value " << at;
}

OpRequest adasum(DType dtype, const std::vector<std::byte>& input, std::vector<std::byte>& output) {
  return {.kind = OpKind::kAllreduce,
          .dtype = dtype,
          .reduce_op = ReduceOp::kAdasum,
          .input = input.data(),
          .output = output.data(),
          .count = input.size() / size_of(dtype)};
}

/// Sizes for a line, a slot, one chunk of a stage and several.
constexpr uint64_t kCounts[] = {0, 1, 5, 1000, 9000, 100'003};
constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

double slack(DType dtype) {
  return dtype == DType::kBF16 ? 0.2 : dtype == DType::kF16 ? 0.02 : 1e-5;
}

/// How ranks reach each other.
std::vector<WorldOptions> worlds(int32_t size) {
  std::vector<WorldOptions> all(4);
  all[1].private_reads = false;
  all[2].board = false;
  for (int32_t r = 0; r < size; ++r) all[3].hosts.push_back(r * 2 / size);
  if (size < 3) all.resize(3);
  for (WorldOptions& options : all) options.size = size;
  return all;
}

class Adasum : public ::testing::TestWithParam<int32_t> {
 protected:
  [[nodiscard]] int32_t size() const { return GetParam(); }
};

TEST_P(Adasum, IsItsDefinitionWithTheSameBitsOnEveryRankAndPath) {
  for (const uint64_t count : kCounts) {
    std::vector<Vector> contributions;
    for (int32_t r = 0; r < size(); ++r) contributions.push_back(contribution(r, count));
    for (const DType dtype : kTypes) {
      std::vector<Vector> vectors;
      std::vector<std::vector<std::byte>> inputs;
      for (const Vector& own : contributions) {
        inputs.push_back(cast(own, dtype));
        vectors.push_back(cast_back(inputs.back(), dtype));
      }
      const Vector want = reference(vectors);
      std::vector<std::byte> first;
      for (const WorldOptions& options : worlds(size())) {
        World world(options);
        std::vector<std::vector<std::byte>> outputs = inputs;
        for (const Status& status : world.run_all([&](int32_t r) {
               const auto i = static_cast<size_t>(r);
               return adasum(dtype, r % 2 == 0 ? inputs[i] : outputs[i], outputs[i]);
             }))
          ASSERT_TRUE(status.ok()) << status.to_string();
        if (first.empty()) first = outputs[0];
        for (const auto& output : outputs) ASSERT_EQ(output, first) << name_of(dtype) << count;
      }
      expect_near(cast_back(first, dtype), want, slack(dtype),
                  fmt::format("{} {}", name_of(dtype), count));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Adasum, ScalesContributionsAndResult) {
  for (const uint64_t count : {5UL, 50'000UL}) {
    std::vector<std::vector<std::byte>> inputs;
    std::vector<Vector> vectors;
    for (int32_t r = 0; r < size(); ++r) {
      vectors.push_back(contribution(r, count));
      inputs.push_back(cast(vectors.back(), DType::kF64));
    }
    Vector want = reference(vectors);
    for (double& value : want) value /= 2;
    for (const WorldOptions& options : worlds(size())) {
      World world(options);
      std::vector<std::vector<std::byte>> outputs = inputs;
      for (const Status& status : world.run_all([&](int32_t r) {
             const auto i = static_cast<size_t>(r);
             OpRequest request = adasum(DType::kF64, inputs[i], outputs[i]);
             request.prescale = 2;
             request.postscale = 0.25;
             return request;
           }))
        ASSERT_TRUE(status.ok()) << status.to_string();
      expect_near(cast_back(outputs.back(), DType::kF64), want, 1e-10, fmt::format("{}", count));
      if (HasFatalFailure()) return;
    }
  }
}

/// Operations one behind the other share staging buffers and the count of what went through them.
TEST_P(Adasum, GoesOnAmongOtherOperationsOfItsGroup) {
  constexpr uint64_t kCount = kSanitized ? 20'000 : 70'000;
  std::vector<std::vector<Vector>> steps(6);
  std::vector<Vector> wants;
  for (size_t step = 0; step < steps.size(); ++step) {
    std::vector<Vector>& vectors = steps[step];
    for (int32_t r = 0; r < size(); ++r) vectors.push_back(contribution(r, kCount + step));
    Vector want = reference(vectors);
    if (step % 2 == 1) {
      std::fill(want.begin(), want.end(), 0);
      for (const Vector& vector : vectors)
        for (size_t i = 0; i < want.size(); ++i) want[i] += vector[i];
    }
    wants.push_back(std::move(want));
  }
  for (const WorldOptions& options : worlds(size())) {
    World world(options);
    World::Works works;
    std::vector<std::vector<std::byte>> data(static_cast<size_t>(size()) * 6);
    for (int32_t r = 0; r < size(); ++r) {
      std::vector<OpRequest> requests;
      for (size_t step = 0; step < 6; ++step) {
        auto& own = data[static_cast<size_t>(r) * 6 + step];
        own = cast(steps[step][static_cast<size_t>(r)], DType::kF32);
        requests.push_back(adasum(DType::kF32, own, own));
        if (step % 2 == 1) requests.back().reduce_op = ReduceOp::kSum;
      }
      works.push_back(world.submit(r, std::move(requests)));
    }
    world.run(works);
    for (size_t step = 0; step < 6; ++step) {
      for (int32_t r = 0; r < size(); ++r) {
        expect_near(cast_back(data[static_cast<size_t>(r) * 6 + step], DType::kF32), wants[step],
                    1e-4, fmt::format("step {}", step));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Names come in any order, and each tensor has factors of its own whatever shares a bucket.
TEST_P(Adasum, LooksAtEachNamedTensorByItself) {
  constexpr size_t kNames = 12;
  for (const WorldOptions& options : worlds(size())) {
    World world(options);
    std::vector<std::vector<std::byte>> data(static_cast<size_t>(size()) * kNames);
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      for (size_t n = 0; n < kNames; ++n) {
        const size_t name = r % 2 == 0 ? n : kNames - 1 - n;
        auto& own = data[static_cast<size_t>(r) * kNames + name];
        own = cast(contribution(r, 10 + name), DType::kF64);
        OpRequest request = adasum(DType::kF64, own, own);
        request.name = fmt::format("delta.{}", name);
        runtime::Engine& engine = world.engine(r);
        works.push_back(submit_named(world, engine, engine.world(), {std::move(request)}));
      }
    }
    world.run(works);
    for (size_t name = 0; name < kNames; ++name) {
      std::vector<Vector> vectors;
      for (int32_t r = 0; r < size(); ++r) vectors.push_back(contribution(r, 10 + name));
      const Vector want = reference(vectors);
      for (int32_t r = 0; r < size(); ++r) {
        const Vector got = cast_back(data[static_cast<size_t>(r) * kNames + name], DType::kF64);
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Adasum, ::testing::Range(1, 10));

TEST(AdasumErrors, NameBothSidesOfADisagreement) {
  for (const WorldOptions& options : worlds(3)) {
    World world(options);
    std::vector<std::vector<std::byte>> data(3, cast(contribution(0, 9000), DType::kF32));
    const auto messages_of = [&](const std::function<void(OpRequest&)>& differ) {
      std::vector<std::string> messages;
      for (const Status& status : world.run_all([&](int32_t r) {
             auto& own = data[static_cast<size_t>(r)];
             OpRequest request = adasum(DType::kF32, own, own);
             if (r == 1) differ(request);
             return request;
           }))
        messages.push_back(status.message());
      return messages;
    };
    EXPECT_THAT(messages_of([](OpRequest& request) { request.reduce_op = ReduceOp::kSum; }),
                Each(AllOf(HasSubstr("allreduce(f32[9000], adasum)"),
                           HasSubstr("allreduce(f32[9000], sum)"))));
    EXPECT_THAT(messages_of([](OpRequest& request) { request.postscale = 3; }),
                Each(HasSubstr("with other scales")));
  }
}

TEST(AdasumErrors, TellEveryoneOfALostRank) {
  const std::vector<std::byte> contributed = cast(contribution(0, 200'000), DType::kF32);
  for (const WorldOptions& options : worlds(5)) {
    for (int rounds = 0; rounds < 40; rounds += 3) {
      World world(options);
      World::Works works;
      std::vector<std::vector<std::byte>> data(5, contributed);
      for (int32_t r = 0; r < 5; ++r) {
        auto& own = data[static_cast<size_t>(r)];
        works.push_back(world.submit(r, {adasum(DType::kF32, own, own)}));
      }
      world.poll_rounds(rounds);
      world.kill(3);
      works.erase(works.begin() + 3);
      world.run(works);
      for (const auto& work : works) {
        if (work->status().ok()) continue;
        EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
        EXPECT_THAT(work->status().message(), HasSubstr("rank 3"));
      }
    }
  }
}

}  // namespace
}  // namespace corro::testing
