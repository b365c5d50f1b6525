// CORRO_COMMIT=1: however ranks die, every operation has the same outcome on all that live, or says
// that its outcome is unknown because the rank that decides was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = kSanitized ? 15 : 200;

struct Case {
  int32_t size;
  bool board;
  std::string_view hosts = {};  ///< Of each rank, with two levels; empty: all on one.
};

/// The kinds that leave ranks early (broadcast, reduce) and those that do not, small and large.
constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kReduce,
                             OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kBarrier};
/// More than are in flight at once, and more than are remembered.
constexpr size_t kMany = 100;

/// Every rank's buffers and works of a few operations in flight at once.
class Steps {
 public:
  /// `groups`: the group of each rank; the world if empty.
  Steps(World& world, uint64_t seed, bool named, std::vector<runtime::Group*> groups = {})
      : ranks_(static_cast<size_t>(world.size())), groups_(std::move(groups)) {
    std::mt19937_64 random(seed);
    const size_t operations = seed % 5 == 1 ? kMany : std::size(kKinds);
    for (size_t i = 0; i < operations; ++i) {
      const size_t count = kind_of(i) == OpKind::kBarrier ? 0 : i == 3 ? 30000 : 1 + random() % 9;
      const auto root = static_cast<int32_t>(random() % ranks_.size());
      for (int32_t r = 0; r < world.size(); ++r) submit(world, r, i, count, root, named);
    }
  }

  [[nodiscard]] World::Works works_of(int32_t rank) const {
    World::Works works;
    for (const auto& operation : ranks_[static_cast<size_t>(rank)]) works.push_back(operation.work);
    return works;
  }
  /// The first operation whose outcome is not the same on all these ranks, in words. Ranks that do
  /// not know the outcome, and say so, agree with all.
  [[nodiscard]] std::string difference(const std::vector<int32_t>& living) const {
    for (size_t i = 0; i < ranks_.front().size(); ++i) {
      int32_t first = -1;
      for (const int32_t rank : living) {
        if (is_unknown(rank, i)) continue;
        if (first < 0) first = rank;
        if (status(rank, i).ok() != status(first, i).ok()) {
          return fmt::format("operation {}: rank {}: {}; rank {}: {}", i, first,
                             status(first, i).to_string(), rank, status(rank, i).to_string());
        }
      }
    }
    return "";
  }
  /// True if some of these ranks do not know how some operation ended.
  [[nodiscard]] bool any_unknown(const std::vector<int32_t>& living) const {
    for (size_t i = 0; i < ranks_.front().size(); ++i) {
      for (const int32_t rank : living) {
        if (is_unknown(rank, i)) return true;
      }
    }
    return false;
  }
  /// Operations that succeeded on a rank with something else than the sum or the root's values.
  [[nodiscard]] int wrong(int32_t rank) const {
    int wrong = 0;
    for (const auto& operation : ranks_[static_cast<size_t>(rank)]) {
      if (!operation.work->status().ok()) continue;
      for (const float value : operation.data) wrong += value == operation.expected ? 0 : 1;
    }
    return wrong;
  }

 private:
  struct Operation {
    std::vector<float> data;
    float expected = 0;
    std::shared_ptr<runtime::WorkState> work;
  };

  static OpKind kind_of(size_t i) { return kKinds[i % std::size(kKinds)]; }

  void submit(World& world, int32_t rank, size_t i, size_t count, int32_t root, bool named) {
    const auto own = static_cast<float>(rank + 1);
    const auto all = static_cast<float>(world.size() * (world.size() + 1) / 2);
    const OpKind kind = kind_of(i);
    const bool summed = kind == OpKind::kAllreduce || (kind == OpKind::kReduce && rank == root);
    ranks_[static_cast<size_t>(rank)].push_back({.data = std::vector<float>(count, own),
                                                 .expected = summed ? all
                                                             : kind == OpKind::kBroadcast
                                                                 ? static_cast<float>(root + 1)
                                                                 : own,
                                                 .work = nullptr});
    Operation& operation = ranks_[static_cast<size_t>(rank)].back();
    auto* bytes = reinterpret_cast<std::byte*>(operation.data.data());
    OpRequest request{.kind = kind, .dtype = DType::kF32, .root = root};
    if (count > 0) {
      request.input = bytes;
      request.output = bytes;
      request.count = count;
    }
    if (named) request.name = fmt::format("step.{}", i);
    runtime::Engine& engine = world.engine(rank);
    runtime::Group& group = groups_.empty() ? engine.world() : *groups_[static_cast<size_t>(rank)];
    operation.work = named ? submit_named(world, engine, group, {request})
                           : world.submit(engine, group, {request});
  }
  [[nodiscard]] bool is_unknown(int32_t rank, size_t i) const {
    return status(rank, i).message().find("outcome unknown") != std::string::npos;
  }
  [[nodiscard]] const Status& status(int32_t rank, size_t i) const {
    return ranks_[static_cast<size_t>(rank)][i].work->status();
  }

  std::vector<std::deque<Operation>> ranks_;
  std::vector<runtime::Group*> groups_;
};

/// What happens to a world while operations are in flight.
struct Fate {
  std::vector<int32_t> dead;
  std::vector<int> rounds;  ///< Before each death.
  bool told = true;         ///< All others learn of it at once.
  int32_t stopped = -1;     ///< Does not run any more from the first death on: no survivor either.
};

/// What a rank does with its group once its own operations are over.
enum class Parting { kStays, kDestroys, kLeaves };

Fate draw_fate(int32_t size, std::mt19937_64& random) {
  Fate fate{.dead = {}, .rounds = {}, .told = random() % 2 == 0};
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  // Often the ranks that decide.
  if (random() % 2 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  const size_t most = static_cast<size_t>(size) - 1;
  const size_t deaths = 1 + random() % std::min<size_t>(most, 3);
  for (size_t i = 0; i < deaths; ++i) {
    fate.dead.push_back(ranks[i]);
    fate.rounds.push_back(static_cast<int>(random() % (i == 0 ? 40 : 6)));
  }
  // One that does not decide: that is the exception (docs/design/0004-closing-round.md).
  const bool decides = std::ssize(fate.dead) >= size - 1;
  const bool dead = std::find(fate.dead.begin(), fate.dead.end(), size - 1) != fate.dead.end();
  if (!decides && !dead && random() % 4 == 0) fate.stopped = size - 1;
  return fate;
}

class Commit : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] int32_t size() const { return GetParam().size; }
  [[nodiscard]] World world(uint64_t seed, bool commit) const {
    return World({.size = size(),
                  .seed = seed,
                  .board = GetParam().board,
                  .hosts = hosts_of(GetParam().hosts),
                  .stream_bytes = 4096,
                  .short_moves = seed % 3 == 0,
                  .selection = two_level_everywhere(),
                  .commit = commit,
                  .rests = true});
  }
  /// As a driver: what is said already gets out first.
  static void leave(World& world, int32_t rank) {
    for (int i = 0; i < 1000 && world.engine(rank).peers().unsent(); ++i) world.poll_rounds(1);
    world.engine(rank).close();
  }
  /// A rank whose operations are over goes its way.
  static void part(World& world, const Steps& steps, int32_t rank,
                   std::vector<runtime::Group*>& groups, Parting parting) {
    runtime::Group*& group = groups[static_cast<size_t>(rank)];
    const World::Works works = steps.works_of(rank);
    const bool over =
        std::all_of(works.begin(), works.end(), [](const auto& work) { return work->done(); });
    if (group == nullptr || !over || parting == Parting::kStays) return;
    if (parting == Parting::kLeaves) {
      leave(world, rank);
    } else if (!world.engine(rank).destroy_group(*group).ok()) {
      return;
    }
    group = nullptr;
  }
  /// Lets ranks die; "" or what differs among those that live.
  std::string outcome(uint64_t seed, bool commit, bool named) {
    std::mt19937_64 random(seed);
    World mortal = world(seed, commit);
    std::vector<int32_t> living(static_cast<size_t>(size()));
    std::iota(living.begin(), living.end(), 0);
    std::vector<runtime::Group*> groups;
    for (const int32_t r : living) groups.push_back(*mortal.engine(r).create_group(living));
    Steps steps(mortal, seed, named, groups);
    const Fate fate = draw_fate(size(), random);
    const auto parting = commit ? static_cast<Parting>(random() % 3) : Parting::kStays;
    for (size_t i = 0; i < fate.dead.size(); ++i) {
      for (int round = 0; round < fate.rounds[i]; ++round) {
        mortal.poll_rounds(1);
        for (const int32_t r : living) part(mortal, steps, r, groups, parting);
      }
      if (fate.stopped >= 0) mortal.stop(fate.stopped);
      mortal.kill(fate.dead[i], fate.told);
      std::erase(living, fate.dead[i]);
      std::erase(living, fate.stopped);
    }
    for (const int32_t r : living) {
      mortal.run(steps.works_of(r));
      part(mortal, steps, r, groups, parting);
    }
    for (const int32_t r : living) EXPECT_EQ(steps.wrong(r), 0) << "on rank " << r;
    const bool decider_lives = living.front() == 0;
    EXPECT_FALSE(decider_lives && steps.any_unknown(living)) << "seed " << seed;
    return steps.difference(living);
  }
};

TEST_P(Commit, WithoutADeathEverythingSucceeds) {
  for (const bool named : {false, true}) {
    World healthy = world(5, true);
    Steps steps(healthy, 5, named);
    for (int32_t r = 0; r < size(); ++r) {
      healthy.run(steps.works_of(r));
      for (const auto& work : steps.works_of(r))
        EXPECT_TRUE(work->status().ok()) << work->status().to_string();
      EXPECT_EQ(steps.wrong(r), 0);
    }
  }
}

TEST_P(Commit, ARankThatSucceedsAndLeavesFailsNobody) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    World healthy = world(seed, true);
    Steps steps(healthy, seed, false);
    for (int32_t r = 0; r < size(); ++r) {
      healthy.run(steps.works_of(r));
      leave(healthy, r);
      for (const auto& work : steps.works_of(r))
        ASSERT_TRUE(work->status().ok()) << work->status().to_string();
    }
  }
}

TEST_P(Commit, WhoeverDiesTheOthersAgreeOnEveryOutcome) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    ASSERT_EQ(outcome(seed, true, seed % 4 == 3), "") << "seed " << seed;
}

TEST_P(Commit, WithoutItTheyDoNotAlways) {
  // Else the test above would prove nothing. A single survivor agrees with itself.
  const uint64_t most = size() > 2 ? 4000 : 20;
  bool differ = false;
  for (uint64_t seed = 0; seed < most && !differ; ++seed)
    differ = !outcome(seed, false, false).empty();
  EXPECT_EQ(differ, size() > 2);
}

TEST_P(Commit, ARankThatDecidesAndStopsEndsEveryWait) {
  World stopped = world(3, true);
  Steps steps(stopped, 3, false);
  stopped.poll_rounds(2);
  stopped.stop(0);
  World::Works works;
  for (int32_t r = 1; r < size(); ++r) {
    for (auto& work : steps.works_of(r)) works.push_back(work);
  }
  stopped.run(works);
  for (const auto& work : works) {
    if (work->status().ok()) continue;
    EXPECT_EQ(work->status().detail()->rank, 0) << work->status().to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Commit,
                         ::testing::Values(Case{2, true}, Case{3, true}, Case{5, true},
                                           Case{2, false}, Case{3, false}, Case{5, false},
                                           Case{4, true, "0011"}, Case{3, true, "010"}),
                         [](const auto& tested) {
                           const Case& c = tested.param;
                           if (!c.hosts.empty()) return fmt::format("hosts_{}", c.hosts);
                           return fmt::format("{}_{}", c.size, c.board ? "board" : "streams");
                         });

}  // namespace
}  // namespace corro::testing
