// Named operations through whole engines: any order, fusion, plans, groups; on the board and over
// streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/sanitized.h"
#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::Each;

class Named : public ::testing::TestWithParam<NamedCase> {
 protected:
  [[nodiscard]] int32_t size() const { return GetParam().size; }
  [[nodiscard]] bool fused() const { return GetParam().fusion_bytes > 0 && size() > 1; }

  /// Every rank submits its tensors in an order of its own, with polls in between if `stagger`.
  void step(World& world, Tensors& tensors, std::mt19937_64& random, bool stagger) {
    World::Works works;
    std::vector<std::vector<size_t>> orders;
    const size_t count = tensors.of(0).size();
    for (int32_t r = 0; r < size(); ++r) {
      auto& order = orders.emplace_back(count);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
    }
    for (size_t i = 0; i < count; ++i) {
      for (int32_t r = 0; r < size(); ++r) {
        Tensor& tensor = tensors.of(r)[orders[static_cast<size_t>(r)][i]];
        works.push_back(submit_named(world, r, tensor.request()));
        if (stagger) world.poll_rounds(static_cast<int>(random() % 3));
      }
    }
    world.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  }

  /// The same order on every rank and in every step.
  void same_step(World& world, size_t count, uint64_t salt) {
    Tensors tensors(size(), count, salt);
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      for (Tensor& tensor : tensors.of(r))
        works.push_back(submit_named(world, r, tensor.request()));
    }
    world.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
    EXPECT_EQ(tensors.wrong(salt), "");
  }
};

TEST_P(Named, AnyOrderOnEveryRankGivesTheSums) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 3 : 12); ++seed) {
    SCOPED_TRACE(seed);
    World world(GetParam().world(seed));
    std::mt19937_64 random(seed);
    for (uint64_t round = 0; round < 3; ++round) {
      Tensors tensors(size(), 30, round);
      step(world, tensors, random, seed % 2 == 0);
      EXPECT_EQ(tensors.wrong(round), "");
    }
  }
}

TEST_P(Named, ThousandsOfShortNamesAtOnceTakeAsManyMessagesAsTheyNeed) {
  for (const bool coded : {false, true}) {
    SCOPED_TRACE(coded);
    World world(GetParam().world(5));
    std::vector<std::vector<Tensor>> tensors(static_cast<size_t>(size()));
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      auto& own = tensors[static_cast<size_t>(r)];
      for (int i = 0; i < 3000; ++i)
        own.push_back({.name = fmt::format("layer{}", i), .data = {float(r + 1)}});
      for (Tensor& tensor : own) {
        OpRequest request = tensor.request();
        if (coded) request.codec = collective::cast_codec(DType::kF16);
        works.push_back(submit_named(world, r, std::move(request)));
      }
    }
    world.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
    const auto sum = static_cast<float>(size() * (size() + 1) / 2);
    for (const auto& own : tensors) {
      for (const Tensor& tensor : own) EXPECT_EQ(tensor.data[0], sum) << tensor.name;
    }
    same_step(world, 3, 1);
  }
}

TEST_P(Named, NamedAndUnnamedOperationsDoNotDisturbEachOther) {
  World world(GetParam().world(3));
  Tensors named(size(), 12);
  Tensors called(size(), 12, 5);
  World::Works works;
  for (size_t i = 0; i < 12; ++i) {
    for (int32_t r = 0; r < size(); ++r) {
      const size_t own = (i + static_cast<size_t>(r) * 5) % 12;
      works.push_back(submit_named(world, r, named.of(r)[own].request()));
      works.push_back(world.submit(r, {called.of(r)[i].request()}));
    }
  }
  world.run(works);
  EXPECT_EQ(named.wrong(), "");
  EXPECT_EQ(called.wrong(5), "");
}

TEST_P(Named, SmallOnesShareOperationsTheSameOnEveryRankAndInEveryRun) {
  std::vector<uint64_t> runs;
  for (int repetition = 0; repetition < 2; ++repetition) {
    World world(GetParam().world(9));
    std::mt19937_64 random(9);
    Tensors tensors(size(), 40);
    step(world, tensors, random, false);
    EXPECT_EQ(tensors.wrong(), "");
    std::vector<uint64_t> by_rank;
    for (int32_t r = 0; r < size(); ++r)
      by_rank.push_back(world.engine(r).recorder().metrics().value(obs::Metric::kOps));
    EXPECT_THAT(by_rank, Each(by_rank.front()));
    runs.push_back(by_rank.front());
  }
  EXPECT_THAT(runs, Each(runs.front())) << "the same seed gives the same buckets";
  if (fused()) {
    EXPECT_LT(runs.front(), 20U);
  } else {
    EXPECT_EQ(runs.front(), 40U);
  }
}

TEST(NamedFusion, GivesTheBitsOfTheUnfused) {
  std::vector<std::vector<float>> results;
  for (const uint64_t fusion : {uint64_t{0}, uint64_t{1} << 20U}) {
    World world({.size = 3, .seed = 4, .fusion = {.threshold_bytes = fusion}});
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < 3 * size_t{20}; ++i) {
      Tensor& tensor = tensors.emplace_back();
      tensor.name = fmt::format("t{}", i % 20);
      for (size_t k = 0; k < 5 + i % 20 * 11; ++k)
        tensor.data.push_back(1.0F / static_cast<float>(3 + i * 17 + k));
    }
    World::Works works;
    for (size_t i = 0; i < tensors.size(); ++i) {
      OpRequest request = tensors[i].request();
      request.reduce_op = i % 20 < 10 ? ReduceOp::kAverage : ReduceOp::kSum;
      request.prescale = i % 20 < 15 ? 1 : 0.3;
      request.postscale = 0.7;
      works.push_back(submit_named(world, static_cast<int32_t>(i / 20), request));
    }
    world.run(works);
    std::vector<float>& all = results.emplace_back();
    for (const Tensor& tensor : tensors)
      all.insert(all.end(), tensor.data.begin(), tensor.data.end());
    EXPECT_EQ(world.engine(0).recorder().metrics().value(obs::Metric::kOps) < 20, fusion > 0);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(NamedFusion, DeterministicGroupsOverStreamsLeaveEachVectorAlone) {
  // An algorithm may add up in another order in another place of a larger vector.
  for (const bool deterministic : {false, true}) {
    World world({.size = 3, .seed = 5, .board = false, .deterministic = deterministic});
    std::vector<Tensor> tensors(3 * size_t{8});
    World::Works works;
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].name = fmt::format("t{}", i % 8);
      tensors[i].data.assign(100, static_cast<float>(i));
      works.push_back(submit_named(world, static_cast<int32_t>(i / 8), tensors[i].request()));
    }
    world.run(works);
    EXPECT_EQ(world.engine(0).recorder().metrics().value(obs::Metric::kOps) == 8, deterministic);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_THAT(tensors[i].data, Each(static_cast<float>(i + (i + 8) + (i + 16))));
  }
}

TEST_P(Named, EveryKindRunsByNameAndOnlyItsRootsBuffersAreWritten) {
  World world(GetParam().world(2));
  const OpKind kinds[] = {OpKind::kBroadcast, OpKind::kReduce, OpKind::kAllgather,
                          OpKind::kReducescatter, OpKind::kBarrier};
  const int32_t root = size() - 1;
  const auto ranks = static_cast<size_t>(size());
  std::vector<std::vector<std::vector<float>>> inputs(ranks), outputs(ranks);
  World::Works works;
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t k = 0; k < 10; ++k) {  // Each twice, so that some share a bucket.
      const OpKind kind = kinds[(k + r) % 5];
      inputs[r].emplace_back(3 * ranks, static_cast<float>(r + 1));
      outputs[r].emplace_back(3 * ranks, -1.0F);
      const bool even = kind == OpKind::kAllgather || kind == OpKind::kReducescatter;
      OpRequest request{.kind = kind,
                        .dtype = DType::kF32,
                        .root = root,
                        .input = reinterpret_cast<const std::byte*>(inputs[r].back().data()),
                        .output = reinterpret_cast<std::byte*>(outputs[r].back().data()),
                        .count = even ? 3 : 3 * ranks,
                        .name = fmt::format("{}.{}", name_of(kind), k / 5)};
      works.push_back(submit_named(world, static_cast<int32_t>(r), request));
    }
  }
  world.run(works);
  const auto total = static_cast<float>(ranks * (ranks + 1)) / 2;
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t k = 0; k < 10; ++k) {
      const OpKind kind = kinds[(k + r) % 5];
      SCOPED_TRACE(fmt::format("{} on rank {}", name_of(kind), r));
      const std::vector<float>& out = outputs[r][k];
      if (kind == OpKind::kBroadcast) {
        EXPECT_THAT(out, Each(static_cast<float>(ranks)));
      }
      if (kind == OpKind::kReduce) {
        EXPECT_THAT(out, Each(r + 1 == ranks ? total : -1.0F));
      }
      if (kind == OpKind::kAllgather) {
        EXPECT_EQ(out.back(), static_cast<float>(ranks));
      }
      if (kind == OpKind::kReducescatter) {
        EXPECT_EQ(out.front(), total);
      }
      EXPECT_THAT(inputs[r][k], Each(static_cast<float>(r + 1)));
    }
  }
}

TEST_P(Named, AnIdleWorldSaysNothingAndHasNothingToWakeUpFor) {
  World world(GetParam().world(6));
  same_step(world, 10, 0);
  world.poll_rounds(200);
  const uint64_t messages = named_messages(world);
  const uint64_t sent = world.engine(0).recorder().metrics().total("messages_sent");
  world.poll_rounds(2000);
  EXPECT_EQ(named_messages(world), messages);
  EXPECT_EQ(world.engine(0).recorder().metrics().total("messages_sent"), sent);
  for (int32_t r = 0; r < size(); ++r) {
    EXPECT_TRUE(world.engine(r).idle());
    EXPECT_EQ(world.engine(r).next_deadline(), Time::never());
  }
}

TEST_P(Named, ARepeatedStepNeedsNoMessageAndIsLeftWithoutAnError) {
  World world(GetParam().world(8));
  for (uint64_t round = 0; round < 12; ++round) same_step(world, 32, round);
  const uint64_t before = named_messages(world);
  for (uint64_t round = 0; round < 5; ++round) same_step(world, 32, round);
  EXPECT_EQ(named_messages(world), before) << "the step has become a static plan";

  std::mt19937_64 random(8);
  for (uint64_t round = 0; round < 3; ++round) {
    Tensors other(size(), 20, round);
    step(world, other, random, true);
    EXPECT_EQ(other.wrong(round), "");
  }
  if (size() > 1) {
    EXPECT_GT(named_messages(world), before);
  }
  for (uint64_t round = 0; round < 12; ++round) same_step(world, 32, round);
}

TEST_P(Named, OneRankAloneMayLeaveAPlan) {
  for (int32_t leaver = 0; leaver < size(); leaver += kSanitized ? 2 : 1) {
    SCOPED_TRACE(leaver);
    World world(GetParam().world(static_cast<uint64_t>(leaver) + 20));
    std::mt19937_64 random(static_cast<uint64_t>(leaver));
    for (uint64_t round = 0; round < 30; ++round) {
      Tensors tensors(size(), 24, round);
      World::Works works;
      for (size_t i = 0; i < 24; ++i) {
        for (int32_t r = 0; r < size(); ++r) {
          // In two rounds, long after the plan has begun, one rank has another order.
          const bool leaves = r == leaver && (round == 15 || round == 20);
          Tensor& tensor = tensors.of(r)[leaves ? (i * 7 + 3) % 24 : i];
          works.push_back(submit_named(world, r, tensor.request()));
          if (random() % 4 == 0) world.poll_rounds(1);
        }
      }
      world.run(works);
      for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
      ASSERT_EQ(tensors.wrong(round), "");
    }
  }
}

TEST_P(Named, OneRankAloneMayWaitInsideALearnedStep) {
  // The others are inside a bucket of which it has submitted one tensor: that is taken back.
  for (int32_t alone = 0; alone < size(); alone += kSanitized ? 2 : 1) {
    SCOPED_TRACE(alone);
    World world(GetParam().world(static_cast<uint64_t>(alone) + 30));
    for (uint64_t step = 0; step < 3; ++step) {
      for (uint64_t round = 0; round < 12; ++round) same_step(world, 32, round);
      Tensors tensors(size(), 32, step);
      World::Works works;
      for (int32_t r = 0; r < size(); ++r) {
        if (r == alone) continue;
        for (Tensor& tensor : tensors.of(r))
          works.push_back(submit_named(world, r, tensor.request()));
      }
      world.poll_rounds(50);
      const Time before = world.now();
      for (size_t i = 0; i < 32; ++i) {
        works.push_back(submit_named(world, alone, tensors.of(alone)[i].request()));
        if (i % 11 == step) world.run({works.back()});
      }
      world.run(works);
      EXPECT_LT(world.now() - before, std::chrono::seconds(5)) << "no deadline ends the wait";
      for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
      ASSERT_EQ(tensors.wrong(step), "");
    }
  }
}

TEST_P(Named, BuffersThatAreTakenBackAreUsedAgain) {
  World world(GetParam().world(6));
  std::byte* before = nullptr;
  for (uint64_t step = 0; step < 6; ++step) {
    for (uint64_t round = 0; round < (kSanitized ? 12 : 40); ++round) same_step(world, 32, round);
    Tensors tensors(size(), 32);
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {  // The last rank waits for its first tensor.
      for (Tensor& tensor : tensors.of(r)) {
        works.push_back(submit_named(world, r, tensor.request()));
        if (r == size() - 1 && &tensor == &tensors.of(r).front()) world.run({works.back()});
      }
    }
    world.run(works);
    std::byte* place = world.engine(0).segment()->allocate(size_t{1} << 20U).value();
    world.engine(0).segment()->free(place);
    if (step >= 2) {
      EXPECT_EQ(place, before) << "the arena has not grown";
    }
    before = place;
  }
}

TEST_P(Named, ABucketsBufferIsKeptForTheNextStep) {
  World world(GetParam().world(5));
  for (uint64_t round = 0; round < 20; ++round) same_step(world, 32, round);
  // What is allocated next lies where it lay before: nothing was taken for buckets since.
  std::byte* before = world.engine(0).segment()->allocate(size_t{1} << 20U).value();
  world.engine(0).segment()->free(before);
  for (uint64_t round = 0; round < 20; ++round) same_step(world, 32, round);
  EXPECT_EQ(world.engine(0).segment()->allocate(size_t{1} << 20U).value(), before);
}

TEST_P(Named, OverlappingGroupsHaveNamesOfTheirOwn) {
  if (size() < 3) return;  // Two groups of two members that share one.
  World world(GetParam().world(7));
  const std::vector<std::vector<int32_t>> members = {{0, 1}, {2, 1}, {1, 0, 2}};
  std::vector<std::vector<runtime::Group*>> groups(members.size());
  World::Works works;
  std::vector<std::vector<float>> data;
  data.reserve(16);
  // The leader of the second group is the last to make it: what others announce has to wait.
  for (const int32_t r : {1, 0, 2}) {
    for (size_t g = 0; g < members.size(); ++g) {
      runtime::Engine& engine = world.engine(r);
      runtime::Group* group = engine.create_group(members[g]).value();
      if (group == nullptr) continue;
      Tensor tensor{.name = "same name", .data = {}};
      data.push_back(std::vector<float>(4, static_cast<float>(1 << r)));
      tensor.data = data.back();
      OpRequest request = tensor.request();
      request.input = request.output = reinterpret_cast<std::byte*>(data.back().data());
      works.push_back(submit_named(world, engine, *group, {request}));
      groups[g].push_back(group);
    }
    world.poll_rounds(20);
  }
  world.run(works);
  for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
  // In the order of submission: rank 1 in all three groups, then ranks 0 and 2.
  const float expected[] = {3, 6, 7, 3, 7, 6, 7};
  for (size_t i = 0; i < 7; ++i) EXPECT_THAT(data[i], Each(expected[i])) << i;
}

TEST_P(Named, AGroupWithNamesCanBeDestroyedAndMadeAgain) {
  World world(GetParam().world(4));
  std::vector<int32_t> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (uint64_t round = 0; round < 90; ++round) {
    std::vector<runtime::Group*> groups;
    Tensors tensors(size(), 8, round);
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      groups.push_back(world.engine(r).create_group(everyone).value());
      for (Tensor& tensor : tensors.of(r)) {
        works.push_back(submit_named(world, world.engine(r), *groups.back(), {tensor.request()}));
      }
    }
    if (size() > 1) {
      EXPECT_FALSE(world.engine(0).destroy_group(*groups[0]).ok()) << "in use";
    }
    world.run(works);
    EXPECT_EQ(tensors.wrong(round), "");
    world.poll_rounds(5);
    for (int32_t r = 0; r < size(); ++r) {
      const Status destroyed = world.engine(r).destroy_group(*groups[static_cast<size_t>(r)]);
      EXPECT_TRUE(destroyed.ok()) << destroyed.to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Named, named_cases(), name_of_named_case);

}  // namespace
}  // namespace corro::testing
