// Joins through whole engines: ranks with different numbers of steps, every type and operator, in
// and out of plans, on the board, over streams and over several hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>

#include "base/sanitized.h"
#include "collective/operation/fold.h"
#include "device/reduce.h"
#include "runtime/named_group.h"
#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using runtime::make_join_work;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// One name: what is reduced under it, the same on all ranks and in all steps.
struct Spec {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kAverage;
  uint64_t count = 1;
  double prescale = 1;
  OpKind kind = OpKind::kAllreduce;
};

/// Every type with every operator, in sizes that share buckets and one that does not.
std::vector<Spec> every_type_and_operator() {
  std::vector<Spec> specs;
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      const Spec spec{.dtype = static_cast<DType>(d),
                      .op = static_cast<ReduceOp>(op),
                      .count = 1 + specs.size() * 37 % 301};
      const bool unknown = (spec.dtype == DType::kBool && spec.op == ReduceOp::kAverage) ||
                           (spec.op == ReduceOp::kAdasum && !is_floating(spec.dtype));
      if (!unknown) specs.push_back(spec);
    }
  }
  specs.push_back({.op = ReduceOp::kMin, .count = 9, .prescale = -2});
  specs.push_back({.op = ReduceOp::kProduct, .count = 9, .prescale = 0.5});
  specs.push_back({.count = 30'000});
  specs.push_back({.op = ReduceOp::kMax, .count = 30'000, .prescale = 2});
  return specs;
}

void store(DType dtype, std::byte* at, double value) {
  const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::kI16:
      return put(static_cast<int16_t>(value));
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    case DType::kI64:
      return put(static_cast<int64_t>(value));
    case DType::kU16:
      return put(static_cast<uint16_t>(value));
    case DType::kU32:
      return put(static_cast<uint32_t>(value));
    case DType::kU64:
      return put(static_cast<uint64_t>(value));
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      return device::cast(DType::kF64, reinterpret_cast<const std::byte*>(&value), dtype, at, 1);
    default:
      return put(static_cast<int8_t>(value));
  }
}

double load(DType dtype, const std::byte* at) {
  const auto get = [at](auto typed) {
    std::memcpy(&typed, at, sizeof typed);
    return static_cast<double>(typed);
  };
  double value = 0;
  switch (dtype) {
    case DType::kI16:
      return get(int16_t{});
    case DType::kI32:
      return get(int32_t{});
    case DType::kI64:
      return get(int64_t{});
    case DType::kU16:
      return get(uint16_t{});
    case DType::kU32:
      return get(uint32_t{});
    case DType::kU64:
      return get(uint64_t{});
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      device::cast(dtype, at, DType::kF64, reinterpret_cast<std::byte*>(&value), 1);
      return value;
    default:
      return get(int8_t{});
  }
}

/// Small enough for products of four in every type.
double contribution(const Spec& spec, int32_t rank, int step, size_t name) {
  const auto mixed = static_cast<size_t>(rank * 5 + step * 3) + name;
  return spec.dtype == DType::kBool ? static_cast<double>(mixed % 2)
                                    : static_cast<double>(1 + mixed % 3);
}

/// Adasum of vectors that are parallel: the mean of two, but for zeros, over its tree.
double adasum(std::vector<double> values) {
  const auto fold = [&values](size_t i) {
    const double a = values[i], b = values[i + 1];
    values[i] = a == 0 || b == 0 ? a + b : (a + b) / 2;
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  };
  for (size_t i = 0; values.size() > std::bit_floor(values.size()); ++i) fold(i);
  while (values.size() > 1)
    for (size_t i = 0; i < values.size(); ++i) fold(i);
  return values[0];
}

double reduce(const Spec& spec, const std::vector<double>& values) {
  const auto fold = [&](double start, const auto& op) {
    return std::accumulate(values.begin(), values.end(), start, op);
  };
  const bool logical = spec.dtype == DType::kBool;
  switch (spec.op) {
    case ReduceOp::kMin:
      return fold(values[0], [](double a, double b) { return std::min(a, b); });
    case ReduceOp::kMax:
      return fold(values[0], [](double a, double b) { return std::max(a, b); });
    case ReduceOp::kProduct:
      return fold(1, std::multiplies<>());
    default:
      break;
  }
  const double sum = fold(0, std::plus<>());
  if (logical) return sum > 0 ? 1 : 0;
  if (spec.op == ReduceOp::kSum) return sum;
  const double mean = sum / static_cast<double>(values.size());
  return collective::folds_at_once({.dtype = spec.dtype, .reduce_op = spec.op}) ? std::trunc(mean)
                                                                                : mean;
}

/// Ranks of a group that train: each so many steps, every name in each, then join().
class Training {
 public:
  struct Member {
    runtime::Engine* engine;
    runtime::Group* group;
    int steps;
  };

  Training(World& world, std::vector<Member> members, std::vector<Spec> specs, uint64_t seed,
           bool shuffled)
      : world_(world), specs_(std::move(specs)), random_(seed), shuffled_(shuffled) {
    for (const Member& member : members) ranks_.push_back({.member = member});
  }

  /// Returns what each rank's join said.
  std::vector<int32_t> run() {
    while (std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.over; })) {
      for (Rank& rank : ranks_) advance(rank);
      world_.poll_rounds(1 + static_cast<int>(random_() % 3));
    }
    std::vector<int32_t> said;
    for (const Rank& rank : ranks_) {
      EXPECT_TRUE(rank.join->status().ok()) << rank.join->status().to_string();
      said.push_back(*rank.last);
    }
    return said;
  }

 private:
  struct Rank {
    Member member;
    int step = -1;
    World::Works works = {};
    std::vector<std::vector<std::byte>> data = {};  ///< By spec.
    std::vector<std::byte> gathered = {};           ///< Of the one spec that is an allgather.
    std::vector<size_t> order = {};                 ///< Of submission: the spec of each work.
    std::shared_ptr<runtime::WorkState> join = nullptr;
    std::unique_ptr<int32_t> last = std::make_unique<int32_t>(-1);
    bool over = false;
  };

  void advance(Rank& rank) {
    const auto done = [](const auto& work) { return work->done(); };
    if (rank.over || !std::ranges::all_of(rank.works, done)) return;
    if (rank.join != nullptr) {
      rank.over = rank.join->done();
      return;
    }
    if (rank.step >= 0) check(rank);
    rank.works.clear();
    if (++rank.step < rank.member.steps) return submit(rank);
    rank.join = make_join_work(rank.last.get(), {});
    rank.member.engine->submit(*rank.member.group, rank.join, world_.now());
  }

  void submit(Rank& rank) {
    std::vector<size_t>& order = rank.order;
    order.resize(specs_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (shuffled_) std::ranges::shuffle(order, random_);
    rank.data.assign(specs_.size(), {});
    for (const size_t i : order) {
      const Spec& spec = specs_[i];
      auto& data = rank.data[i];
      data.resize(spec.count * size_of(spec.dtype));
      const double value = contribution(spec, rank.member.group->facts().rank, rank.step, i);
      for (uint64_t k = 0; k < spec.count; ++k)
        store(spec.dtype, data.data() + k * size_of(spec.dtype), value);
      const bool in_place = spec.kind == OpKind::kAllreduce;
      rank.gathered.resize(in_place ? 0 : data.size() * ranks_.size());
      OpRequest request{.kind = spec.kind,
                        .dtype = spec.dtype,
                        .reduce_op = spec.op,
                        .input = data.data(),
                        .output = in_place ? data.data() : rank.gathered.data(),
                        .count = spec.count,
                        .prescale = spec.prescale,
                        .name = fmt::format("grad.{}", i)};
      rank.works.push_back(
          submit_named(world_, *rank.member.engine, *rank.member.group, {std::move(request)}));
    }
  }

  void check(const Rank& rank) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const size_t which = rank.order[i];
      if (specs_[which].kind == OpKind::kAllreduce) {
        check_result(rank, which, rank.works[i]->status());
      } else {
        check_possible(rank, rank.works[i]->status());
      }
    }
  }

  /// Of what has no identity: it goes on while nobody has joined.
  void check_possible(const Rank& rank, const Status& status) {
    const bool all = std::ranges::all_of(
        ranks_, [&](const Rank& other) { return other.member.steps > rank.step; });
    EXPECT_EQ(status.code(), all ? Code::kOk : Code::kFailedPrecondition) << status.to_string();
    if (all) return;
    EXPECT_THAT(status.message(), HasSubstr("Allgather is not supported with Join"));
  }

  void check_result(const Rank& rank, size_t i, const Status& status) {
    ASSERT_TRUE(status.ok()) << status.to_string();
    const Spec& spec = specs_[i];
    std::vector<double> values;
    std::vector<double> with_zeros(ranks_.size());
    for (const Rank& other : ranks_) {
      if (other.member.steps <= rank.step) continue;
      const int32_t of = other.member.group->facts().rank;
      values.push_back(spec.prescale * contribution(spec, of, rank.step, i));
      with_zeros[static_cast<size_t>(of)] = values.back();
    }
    const double want = spec.op == ReduceOp::kAdasum ? adasum(with_zeros) : reduce(spec, values);
    const double slack = spec.dtype == DType::kBF16 ? 0.02 : spec.dtype == DType::kF16 ? 2e-3 : 0;
    for (uint64_t k = 0; k < spec.count; ++k) {
      const double got = load(spec.dtype, rank.data[i].data() + k * size_of(spec.dtype));
      ASSERT_NEAR(got, want, slack + 1e-6)
          << name_of(spec.dtype) << " " << name_of(spec.op) << " of " << values.size()
          << " ranks in step " << rank.step << " at " << k;
    }
  }

  World& world_;
  std::vector<Spec> specs_;
  std::vector<Rank> ranks_;
  std::mt19937_64 random_;
  bool shuffled_;
};

std::vector<Training::Member> members_of(World& world, const std::vector<int>& steps) {
  std::vector<Training::Member> members;
  for (int32_t r = 0; r < world.size(); ++r) {
    runtime::Engine& engine = world.engine(r);
    members.push_back({&engine, &engine.world(), steps[static_cast<size_t>(r)]});
  }
  return members;
}

struct JoinCase {
  std::string name;
  WorldOptions world;
};

class NamedJoin : public ::testing::TestWithParam<JoinCase> {
 protected:
  [[nodiscard]] int32_t size() const { return GetParam().world.size; }
  [[nodiscard]] WorldOptions options(uint64_t seed) const {
    WorldOptions options = GetParam().world;
    options.seed = seed;
    return options;
  }
};

TEST_P(NamedJoin, EveryTypeAndOperatorGoesOnWithThoseWhoHaveSteps) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 2 : 8); ++seed) {
    SCOPED_TRACE(seed);
    World world(options(seed));
    std::mt19937_64 random(seed);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int> steps;
      for (int32_t r = 0; r < size(); ++r) steps.push_back(static_cast<int>(random() % 9));
      const bool shuffled = seed % 2 == 0;
      Training training(world, members_of(world, steps), every_type_and_operator(), seed, shuffled);
      const std::vector<int32_t> last = training.run();
      EXPECT_THAT(last, Each(last.front()));
    }
  }
}

TEST_P(NamedJoin, APlansAveragesLeaveOutWhoHasJoined) {
  const std::vector<Spec> specs(70, Spec{.op = ReduceOp::kAverage, .count = 40});
  for (uint64_t seed = 1; seed <= (kSanitized ? 2 : 8); ++seed) {
    SCOPED_TRACE(seed);
    World world(options(seed));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int> steps;
      const auto longest = static_cast<int32_t>(seed % static_cast<uint64_t>(size()));
      for (int32_t r = 0; r < size(); ++r) steps.push_back(r == longest ? 16 : 10 + r);
      Training training(world, members_of(world, steps), specs, seed, false);
      EXPECT_THAT(training.run(), Each(longest));
    }
  }
}

TEST_P(NamedJoin, WhatHasNoIdentityFailsAlsoInsideAPlan) {
  std::vector<Spec> specs(70, Spec{.op = ReduceOp::kAverage, .count = 40});
  specs[30] = {.count = 1000, .kind = OpKind::kAllgather};
  for (uint64_t seed = 1; seed <= (kSanitized ? 2 : 8); ++seed) {
    SCOPED_TRACE(seed);
    World world(options(seed));
    std::vector<int> steps;
    for (int32_t r = 0; r < size(); ++r) steps.push_back(10 + r % 3);
    Training training(world, members_of(world, steps), specs, seed, false);
    (void)training.run();
  }
}

TEST_P(NamedJoin, ARankMayRunOutOfDataInTheMiddleOfALearnedStep) {
  if (size() == 1) GTEST_SKIP() << "nobody goes on alone";
  for (const bool waits : {true, false}) {
    SCOPED_TRACE(waits);
    World world(options(7));
    const int32_t joins = size() - 1;
    std::deque<Tensors> kept;
    const auto submit = [&](int32_t r, size_t i) {
      OpRequest request = kept.back().of(r)[i].request();
      request.reduce_op = ReduceOp::kAverage;
      return submit_named(world, r, std::move(request));
    };
    for (uint64_t round = 0; round < 13; ++round) {
      kept.emplace_back(size(), 40, round);
      World::Works works;
      for (int32_t r = 0; r < size(); ++r) {
        const bool runs_out = round == 12 && r == joins;
        for (size_t i = 0; i < (runs_out ? 7U : 40U); ++i) works.push_back(submit(r, i));
      }
      std::vector<int32_t> last(static_cast<size_t>(size()), -1);
      if (round == 12) {
        // What it has submitted, or nothing, is waited for before it joins.
        if (waits) world.run({works.end() - 7, works.end()});
        for (int32_t r = size() - 1; r >= 0; --r) {
          auto join = make_join_work(&last[static_cast<size_t>(r)], {});
          runtime::Engine& engine = world.engine(r);
          engine.submit(engine.world(), join, world.now());
          works.push_back(std::move(join));
        }
      }
      world.run(works);
      for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
      Tensors inputs(size(), 40, round);
      for (size_t i = 0; i < 40; ++i) {
        const int32_t ranks = round == 12 && i >= 7 ? size() - 1 : size();
        float sum = 0;
        for (int32_t r = 0; r < ranks; ++r) sum += inputs.of(r)[i].data[0];
        for (int32_t r = 0; r < ranks; ++r)
          EXPECT_NEAR(kept.back().of(r)[i].data[0], sum / static_cast<float>(ranks), 1e-4) << i;
      }
    }
  }
}

TEST_P(NamedJoin, AGroupOfSomeRanksJoinsByItself) {
  if (size() < 3) GTEST_SKIP() << "needs a group that is not the world";
  World world(options(5));
  const std::vector<int32_t> ranks = {2, 0};
  std::vector<Training::Member> members;
  for (const int32_t r : ranks) {
    runtime::Engine& engine = world.engine(r);
    members.push_back({&engine, engine.create_group(ranks).value(), r == 2 ? 1 : 3});
  }
  Training training(world, members, {{.count = 7}}, 5, false);
  EXPECT_THAT(training.run(), Each(0)) << "world ranks";
}

TEST_P(NamedJoin, OtherKindsFailOnThoseWhoSubmittedThemAndTheGroupGoesOn) {
  if (size() == 1) GTEST_SKIP() << "nobody goes on alone";
  World world(options(3));
  std::vector<int32_t> last(static_cast<size_t>(size()), -1);
  World::Works joins, broadcasts;
  const auto join = [&](int32_t rank) {
    joins.push_back(make_join_work(&last[static_cast<size_t>(rank)], {}));
    world.engine(rank).submit(world.engine(rank).world(), joins.back(), world.now());
  };
  join(size() - 1);
  Tensors tensors(size(), 1);
  for (int32_t r = 0; r < size() - 1; ++r)
    broadcasts.push_back(submit_named(world, r, tensors.of(r)[0].request(OpKind::kBroadcast)));
  world.run(broadcasts);
  for (const auto& work : broadcasts) {
    EXPECT_EQ(work->status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(work->status().message(),
                AllOf(StartsWith("Broadcast is not supported with Join at this time."),
                      HasSubstr(fmt::format("Rank {} has joined", size() - 1))));
  }
  for (int32_t r = 0; r < size() - 1; ++r) join(r);
  world.run(joins);
  EXPECT_THAT(last, Each(last.front()));
  const auto again = world.run_all([&](int32_t r) { return tensors.of(r)[0].request(); });
  for (const Status& status : again) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(NamedJoin, WaitsForEverUnlessGivenATimeAndCanBeCalledAgain) {
  if (size() == 1) GTEST_SKIP() << "one rank never waits";
  World world(options(4));
  std::vector<int32_t> last(static_cast<size_t>(size()), -1);
  const auto join = [&](int32_t rank, Duration timeout) {
    auto work = make_join_work(&last[static_cast<size_t>(rank)], timeout);
    world.engine(rank).submit(world.engine(rank).world(), work, world.now());
    return work;
  };
  const auto first = join(1, {});
  world.poll_rounds(50);
  world.pass_time(std::chrono::hours(5));
  world.poll_rounds(50);
  EXPECT_FALSE(first->done());
  EXPECT_EQ(join(1, {})->status().code(), Code::kAlreadyExists);
  Tensor tensor{.name = "late", .data = {1}};
  EXPECT_EQ(submit_named(world, 1, tensor.request())->status().code(), Code::kFailedPrecondition);

  const auto timed = join(0, std::chrono::seconds(5));
  if (size() > 2) {
    world.run({timed});
    EXPECT_EQ(timed->status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(timed->status().message(), HasSubstr("not joined by rank 2"));
    EXPECT_EQ(timed->status().detail()->rank, 2);
  }
  World::Works rest = {first};
  const bool comes_back = size() == 3;  // Else the others end it without its caller.
  if (comes_back) rest.push_back(join(0, {}));
  for (int32_t r = 2; r < size(); ++r) {
    rest.push_back(join(r, {}));
    world.poll_rounds(50);
  }
  world.run(rest);
  if (!comes_back && size() > 2) {
    Tensor early{.name = "before it has come back", .data = {1}};
    EXPECT_EQ(submit_named(world, 0, early.request())->status().code(), Code::kFailedPrecondition);
    EXPECT_TRUE(join(0, {})->done()) << "it has ended without its caller";
  }
  EXPECT_TRUE(size() == 2 || last[0] == size() - 1) << last[0];
  EXPECT_THAT(std::vector(last.begin() + 1, last.end()), Each(size() == 2 ? 0 : size() - 1));
}

TEST_P(NamedJoin, AJoinedRankThatIsLostFailsTheGroup) {
  if (size() == 1) GTEST_SKIP() << "nobody is left";
  World world(options(6));
  std::vector<int32_t> last(static_cast<size_t>(size()), -1);
  World::Works joins;
  for (int32_t r = 1; r < size(); ++r) {
    joins.push_back(make_join_work(&last[static_cast<size_t>(r)], {}));
    world.engine(r).submit(world.engine(r).world(), joins.back(), world.now());
  }
  world.poll_rounds(50);
  world.kill(size() - 1);
  joins.pop_back();
  Tensor tensor{.name = "goes on", .data = {1}};
  joins.push_back(submit_named(world, 0, tensor.request()));
  world.run(joins);
  for (const auto& work : joins) {
    EXPECT_EQ(work->status().code(), Code::kUnavailable);
    EXPECT_THAT(work->status().message(), HasSubstr(fmt::format("rank {}", size() - 1)));
  }
}

TEST_P(NamedJoin, WhoHasReturnedMayLeaveTheJob) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    World world(options(seed));
    std::vector<int32_t> last(static_cast<size_t>(size()), -1);
    World::Works joins;
    for (int32_t r = 0; r < size(); ++r) {
      joins.push_back(make_join_work(&last[static_cast<size_t>(r)], {}));
      world.engine(r).submit(world.engine(r).world(), joins.back(), world.now());
    }
    std::vector<bool> closed(joins.size());
    const auto done = [](const auto& work) { return work->done(); };
    while (!std::ranges::all_of(joins, done)) {
      world.poll_rounds(1);
      for (size_t r = 0; r < joins.size(); ++r) {
        if (!joins[r]->done() || closed[r]) continue;
        closed[r] = true;
        world.engine(static_cast<int32_t>(r)).close();
      }
    }
    for (const auto& work : joins) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, NamedJoin,
    ::testing::Values(
        JoinCase{"one", {.size = 1}}, JoinCase{"two_board", {.size = 2}},
        JoinCase{"four_board", {.size = 4}},
        JoinCase{"three_board_unfused", {.size = 3, .fusion = {.threshold_bytes = 0}}},
        JoinCase{"two_streams", {.size = 2, .board = false}},
        JoinCase{"three_streams", {.size = 3, .board = false, .short_moves = true}},
        JoinCase{"two_hosts",
                 {.size = 4, .hosts = hosts_of("0011"), .selection = two_level_everywhere()}},
        JoinCase{"closing_rounds", {.size = 3, .commit = true}}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace corro::testing
