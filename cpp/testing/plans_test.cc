// Loaded plans on the engines of a World: what fires where and with which data, and how a plan
// stops on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/files.h"

#include "testing/world.h"

namespace corro::testing {
namespace {

using graph::ChannelId;
using graph::LaneId;
using graph::Plan;
using runtime::LoadedPlan;
using runtime::LoadOptions;
using runtime::PulledFiring;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kMany = 1000;

std::span<float> floats(const graph::Slot& slot) {
  return {reinterpret_cast<float*>(slot.data.data()), slot.data.size() / sizeof(float)};
}

/// What the users' threads of all ranks do, played by the test: services by name.
class Users {
 public:
  using Function = std::function<Status(int32_t rank, const PulledFiring&)>;
  explicit Users(World& world) : world_(world), plans_(static_cast<size_t>(world.size())) {}

  void set(const std::string& service, Function function) {
    functions_[service] = std::move(function);
  }
  Status load(int32_t rank, const Plan& plan, const LoadOptions& options = {}) {
    return load(rank, world_.engine(rank).world(), plan, options);
  }
  Status load(int32_t rank, runtime::Group& group, const Plan& plan,
              const LoadOptions& options = {}) {
    const auto loaded = world_.engine(rank).load(group, plan, options);
    if (loaded.ok()) plans_[static_cast<size_t>(rank)] = *loaded;
    return loaded.status();
  }
  void load_all(const Plan& plan, const LoadOptions& options = {}) {
    for (int32_t r = 0; r < world_.size(); ++r)
      ASSERT_TRUE(load(r, plan, options).ok()) << load(r, plan, options).to_string();
  }
  [[nodiscard]] LoadedPlan& plan(int32_t rank) { return *plans_[static_cast<size_t>(rank)]; }
  void forget(int32_t rank) { plans_[static_cast<size_t>(rank)] = nullptr; }

  World::Works run_until(uint32_t micro) {
    World::Works works;
    for (LoadedPlan* plan : plans_) {
      if (plan != nullptr) works.push_back(plan->run_until(micro));
    }
    return works;
  }
  /// Polls and computes until the works are done; false if nothing moves any more.
  bool play(const World::Works& works) {
    const auto over = [](const auto& work) { return work->done(); };
    for (int quiet = 0; quiet < 100; ++quiet) {
      if (std::all_of(works.begin(), works.end(), over)) return true;
      world_.poll_rounds(1);
      if (compute()) quiet = 0;
    }
    return false;
  }
  /// Runs what has fired; true if there was something.
  bool compute() {
    bool any = false;
    for (int32_t r = 0; r < world_.size(); ++r) {
      LoadedPlan* plan = plans_[static_cast<size_t>(r)];
      if (plan == nullptr) continue;
      const runtime::PlanPart& part = plan->part();
      for (LaneId lane = 0; lane < part.whole().lanes.size(); ++lane) {
        runtime::PulledLane* pulled = part.pulled_lane(lane);
        if (pulled == nullptr) continue;
        for (auto next = pulled->next({}); next.ok(); next = pulled->next({})) {
          const std::string& name = part.whole().services[next->service].name;
          EXPECT_TRUE(pulled->done(*next, functions_.at(name)(r, *next)).ok());
          any = true;
        }
      }
    }
    return any;
  }

 private:
  World& world_;
  std::vector<LoadedPlan*> plans_;
  std::map<std::string, Function> functions_;
};

class Plans : public ::testing::TestWithParam<bool> {
 protected:
  static WorldOptions options(int32_t size) { return {.size = size, .board = GetParam()}; }
};

/// source on the first rank -> stage on each further one -> sink on the last.
Plan chain(uint32_t ranks, uint64_t bytes, uint32_t slots) {
  Plan plan;
  plan.ranks = ranks;
  for (uint32_t r = 0; r < ranks; ++r)
    plan.add_lane({.name = "cpu" + std::to_string(r), .ranks = {r}});
  ChannelId before = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    const ChannelId after =
        r + 1 < ranks ? plan.add_channel(
                            {.name = "c" + std::to_string(r), .slots = slots, .slot_bytes = bytes})
                      : 0;
    plan.add_service({.name = "stage" + std::to_string(r),
                      .lane = r,
                      .inputs = r > 0 ? std::vector{before} : std::vector<ChannelId>{},
                      .outputs = r + 1 < ranks ? std::vector{after} : std::vector<ChannelId>{}});
    before = after;
  }
  return plan;
}

/// Each stage adds one to what comes in; the last one notes what it got.
void play_chain(Users& users, uint32_t ranks, std::vector<std::vector<float>>& seen) {
  for (uint32_t r = 0; r < ranks; ++r) {
    users.set("stage" + std::to_string(r), [r, ranks, &seen](int32_t, const PulledFiring& firing) {
      const auto micro = static_cast<float>(firing.generation.micro);
      if (r + 1 == ranks) {
        const auto data = floats(*firing.inputs[0]);
        seen.emplace_back(data.begin(), data.end());
        return Status();
      }
      const auto out = floats(*firing.outputs[0]);
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = r == 0 ? micro * 100 : floats(*firing.inputs[0])[i] + 1;
      return Status();
    });
  }
}

void expect_chain(const std::vector<std::vector<float>>& seen, uint32_t ranks, size_t micros,
                  size_t count) {
  ASSERT_EQ(seen.size(), micros);
  for (size_t micro = 0; micro < micros; ++micro) {
    const float wanted = static_cast<float>(micro) * 100 + static_cast<float>(ranks) - 2;
    EXPECT_EQ(seen[micro], std::vector<float>(count, wanted)) << "micro-batch " << micro;
  }
}

TEST_P(Plans, DataFlowsFromRankToRank) {
  for (const uint32_t slots : {1U, 3U}) {
    World world(options(4));
    Users users(world);
    std::vector<std::vector<float>> seen;
    play_chain(users, 4, seen);
    users.load_all(chain(4, 4096, slots));
    ASSERT_TRUE(users.play(users.run_until(20)));
    expect_chain(seen, 4, 20, 1024);
    EXPECT_EQ(users.plan(0).completed(), 20U);
    EXPECT_EQ(users.plan(0).part().completed_by(0), 20U);
    EXPECT_EQ(users.plan(0).part().completed_by(1), std::nullopt) << "is on another rank";
  }
}

TEST_P(Plans, AMessageLargerThanTheStreamsArrives) {
  World world(options(2));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 2, seen);
  users.load_all(chain(2, size_t{1} << 20U, 2));
  ASSERT_TRUE(users.play(users.run_until(3)));
  expect_chain(seen, 2, 3, size_t{1} << 18U);
}

TEST_P(Plans, ATransferSendsWhatIsFilled) {
  constexpr uint64_t kRoom = uint64_t{1} << 20U;
  const std::vector<uint64_t> sizes{kRoom, 3, 0, 70'000, 8, kRoom};
  World world(options(2));
  Users users(world);
  std::vector<uint64_t> seen;
  std::vector<uint64_t> sent;
  const auto sent_so_far = [&world] {
    return world.engine(0).recorder().metrics().total("bytes_sent");
  };
  users.set("stage0", [&](int32_t, const PulledFiring& firing) {
    graph::Slot& slot = *firing.outputs[0];
    const uint64_t size = sizes[firing.generation.micro];
    EXPECT_EQ(slot.size_bytes, kRoom) << "all of it, unless it says otherwise";
    std::fill_n(slot.data.begin(), size, static_cast<std::byte>(firing.generation.micro + 1));
    if (size < kRoom) slot.size_bytes = size;
    return Status();
  });
  users.set("stage1", [&](int32_t, const PulledFiring& firing) {
    const graph::Slot& slot = *firing.inputs[0];
    const auto filled = slot.data.first(slot.size_bytes);
    const auto value = static_cast<std::byte>(firing.generation.micro + 1);
    EXPECT_EQ(std::count(filled.begin(), filled.end(), value),
              static_cast<std::ptrdiff_t>(filled.size()));
    seen.push_back(slot.size_bytes);
    sent.push_back(sent_so_far());
    return Status();
  });
  users.load_all(chain(2, kRoom, 1));
  const uint64_t before = sent_so_far();
  for (uint32_t micro = 1; micro <= sizes.size(); ++micro)
    ASSERT_TRUE(users.play(users.run_until(micro)));
  EXPECT_EQ(seen, sizes);
  for (size_t i = 0; i < sizes.size(); ++i)
    EXPECT_EQ(sent[i] - (i == 0 ? before : sent[i - 1]), sizes[i]) << "micro-batch " << i;
}

TEST_P(Plans, ARankMayLoadAndRunBeforeAnother) {
  World world(options(3));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 3, seen);
  const Plan plan = chain(3, 64, 1);
  World::Works works;
  for (const int32_t rank : {2, 0, 1}) {
    ASSERT_TRUE(users.load(rank, plan).ok());
    works.push_back(users.plan(rank).run_until(5));
    EXPECT_FALSE(rank != 1 && users.play(works));
  }
  ASSERT_TRUE(users.play(works));
  expect_chain(seen, 3, 5, 16);
}

TEST_P(Plans, ALoadedAgainPlanStartsAfresh) {
  World world(options(3));
  Users users(world);
  const Plan plan = chain(3, 64, 2);
  for (int run = 0; run < 3; ++run) {
    std::vector<std::vector<float>> seen;
    play_chain(users, 3, seen);
    users.load_all(plan);
    ASSERT_TRUE(users.play(users.run_until(4)));
    expect_chain(seen, 3, 4, 16);
    for (int32_t r = 0; r < 3; ++r) world.engine(r).unload(world.engine(r).world(), users.plan(r));
  }
}

TEST_P(Plans, ItGoesOnFromTheFirstMicroBatchThatIsAskedFor) {
  World world(options(2));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 2, seen);
  users.load_all(chain(2, 64, 2), {.first = 7});
  ASSERT_TRUE(users.play(users.run_until(9)));
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0][0], 700);
  EXPECT_EQ(seen[1][0], 800);
  EXPECT_EQ(users.plan(1).completed(), 9U);
}

TEST_P(Plans, AWaitEndsWithItsMicroBatches) {
  World world(options(2));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 2, seen);
  users.load_all(chain(2, 64, 1));
  const World::Works some = users.run_until(2);
  const World::Works more = users.run_until(6);
  ASSERT_TRUE(users.play(some));
  EXPECT_FALSE(more[0]->done() && more[1]->done());
  ASSERT_TRUE(users.play(more));
  EXPECT_EQ(seen.size(), 6U);
}

// -- collectives ----------------------------------------------------------------------------------

/// On every rank: fill -> grad -> allreduce over `ranks` -> sum -> use.
Plan reducing(uint32_t ranks, const std::vector<uint32_t>& members, uint32_t count) {
  Plan plan;
  plan.ranks = ranks;
  const uint64_t bytes = count * sizeof(float);
  const LaneId all = plan.add_lane(
      {.name = "dp", .order = graph::LaneOrder::kAgreed, .depth = 2, .ranks = members});
  const ChannelId sum = plan.add_channel({.name = "sum", .slots = 2, .slot_bytes = bytes});
  std::vector<ChannelId> grads;
  for (const uint32_t r : members) {
    const LaneId cpu = plan.add_lane({.name = "cpu" + std::to_string(r), .ranks = {r}});
    grads.push_back(
        plan.add_channel({.name = "grad" + std::to_string(r), .slots = 2, .slot_bytes = bytes}));
    plan.add_service({.name = "fill" + std::to_string(r), .lane = cpu, .outputs = {grads.back()}});
    plan.add_service({.name = "use" + std::to_string(r), .lane = cpu, .inputs = {sum}});
  }
  plan.add_service({.name = "reduce",
                    .lane = all,
                    .inputs = grads,
                    .outputs = {sum},
                    .operation = graph::OperationSpec{
                        .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = count}});
  return plan;
}

void play_reducing(Users& users, const std::vector<uint32_t>& members, std::vector<float>& sums) {
  for (const uint32_t r : members) {
    users.set("fill" + std::to_string(r), [](int32_t rank, const PulledFiring& firing) {
      std::ranges::fill(
          floats(*firing.outputs[0]),
          static_cast<float>(firing.generation.micro * 10) + static_cast<float>(rank));
      return Status();
    });
    users.set("use" + std::to_string(r), [&sums](int32_t, const PulledFiring& firing) {
      const auto data = floats(*firing.inputs[0]);
      EXPECT_EQ(std::count(data.begin(), data.end(), data[0]),
                static_cast<std::ptrdiff_t>(data.size()));
      sums.push_back(data[0]);
      return Status();
    });
  }
}

TEST_P(Plans, CollectivesOfSomeOrAllRanksAreServices) {
  for (const std::vector<uint32_t>& members :
       {std::vector<uint32_t>{0, 1, 2}, std::vector<uint32_t>{0, 2}, std::vector<uint32_t>{1}}) {
    World world(options(3));
    Users users(world);
    std::vector<float> sums;
    play_reducing(users, members, sums);
    users.load_all(reducing(3, members, 5000));
    ASSERT_TRUE(users.play(users.run_until(40)));
    float ranks = 0;
    for (const uint32_t r : members) ranks += static_cast<float>(r);
    std::map<float, size_t> counts;
    for (const float sum : sums) ++counts[sum];
    for (size_t micro = 0; micro < 40; ++micro) {
      const float wanted = static_cast<float>(micro * 10 * members.size()) + ranks;
      EXPECT_EQ(counts[wanted], members.size()) << "micro-batch " << micro;
    }
  }
}

// -- the loader's memory --------------------------------------------------------------------------

/// What a loader gives for the two slots of a channel.
struct OwnSlots {
  explicit OwnSlots(size_t count) : slots(2, std::vector<float>(count)) {}
  [[nodiscard]] runtime::ChannelMemory of(ChannelId channel) {
    return {
        channel,
        {std::as_writable_bytes(std::span(slots[0])), std::as_writable_bytes(std::span(slots[1]))}};
  }
  std::vector<std::vector<float>> slots;
};

TEST_P(Plans, TransfersUseTheLoadersMemory) {
  World world(options(2));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 2, seen);
  std::vector<OwnSlots> own(2, OwnSlots(1024));
  for (const int32_t r : {0, 1}) {
    const Status loaded =
        users.load(r, chain(2, 4096, 2), {.memory = {own[static_cast<size_t>(r)].of(0)}});
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    EXPECT_EQ(users.plan(r).part().memory(), nullptr) << "the arena has no part in it";
  }
  ASSERT_TRUE(users.play(users.run_until(5)));
  expect_chain(seen, 2, 5, 1024);
  for (OwnSlots& rank : own) {
    EXPECT_EQ(rank.slots[0], std::vector<float>(1024, 400));
    EXPECT_EQ(rank.slots[1], std::vector<float>(1024, 300));
  }
}

TEST_P(Plans, CollectivesUseTheLoadersMemoryBesideTheArenas) {
  World world(options(2));
  Users users(world);
  std::vector<float> sums;
  play_reducing(users, {0, 1}, sums);
  std::vector<OwnSlots> own(2, OwnSlots(5000));
  ASSERT_TRUE(users.load(0, reducing(2, {0, 1}, 5000), {.memory = {own[0].of(0)}}).ok());
  ASSERT_TRUE(users.load(1, reducing(2, {0, 1}, 5000), {.memory = {own[1].of(2)}}).ok());
  ASSERT_TRUE(users.play(users.run_until(6)));
  EXPECT_EQ(sums.size(), 12U);
  EXPECT_EQ(own[0].slots[1], std::vector<float>(5000, 101)) << "the sums of micro-batch 5";
  EXPECT_EQ(own[1].slots[1], std::vector<float>(5000, 51)) << "what rank 1 has filled for it";
}

TEST_P(Plans, MemoryThatIsNotThatOfTheSlotsIsRefusedInOneLine) {
  World world(options(2));
  Users users(world);
  OwnSlots own(16);
  OwnSlots small(15);
  const auto loads = [&](std::vector<runtime::ChannelMemory> memory) {
    return users.load(0, reducing(2, {0, 1}, 16), {.memory = std::move(memory)}).to_string();
  };
  const std::string line = "INVALID_ARGUMENT: plan: memory: ";
  EXPECT_EQ(loads({own.of(3)}), line + "there is no channel 3 of 3");
  EXPECT_EQ(loads({own.of(2)}), line + "channel \"grad1\" does not lie on rank 0");
  EXPECT_EQ(loads({own.of(0), own.of(0)}), line + "channel \"sum\" comes twice");
  EXPECT_EQ(loads({{0, {own.of(0).slots[0]}}}),
            line + "channel \"sum\" has 2 slots, and was given 1");
  EXPECT_EQ(loads({{0, {own.of(0).slots[0], small.of(0).slots[1]}}}),
            line + "slot 1 of channel \"sum\" needs 64 bytes, and was given 60");
  EXPECT_EQ(loads({{0, {std::span<std::byte>(), own.of(0).slots[1]}}}),
            line + "slot 0 of channel \"sum\" needs 64 bytes, and was given 0");
  EXPECT_EQ(loads({own.of(0), own.of(1)}), "OK");
}

// -- copies ---------------------------------------------------------------------------------------

using graph::CopyKind;
using graph::CopySpec;

/// As Users::play(), for plans with threads of their own: nothing moves while they copy.
void play_on(World& world, Users& users, const World::Works& works) {
  while (!std::ranges::all_of(works, [](const auto& work) { return work->done(); })) {
    world.poll_rounds(1);
    (void)users.compute();
    std::this_thread::yield();
  }
}

/// fill -> a -> copy -> b -> take, on one rank.
Plan copying(uint64_t bytes, uint32_t slots) {
  Plan plan;
  const LaneId cpu = plan.add_lane({.name = "cpu"});
  const LaneId copies = plan.add_lane({.name = "copies", .depth = 2});
  const ChannelId a = plan.add_channel({.name = "a", .slots = slots, .slot_bytes = bytes});
  const ChannelId b = plan.add_channel({.name = "b", .slots = slots, .slot_bytes = bytes + 4});
  plan.add_service({.name = "fill", .lane = cpu, .outputs = {a}});
  plan.add_service(
      {.name = "copy", .lane = copies, .inputs = {a}, .outputs = {b}, .copy = CopySpec{}});
  plan.add_service({.name = "take", .lane = cpu, .priority = -1, .inputs = {b}});
  return plan;
}

/// Threads of lanes of copies, of this process.
size_t copying_threads() {
  size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    found += io::read_small_file(task.path() / "comm") == "corro-copy\n" ? 1 : 0;
  return found;
}

TEST_P(Plans, MemoryIsCopiedAtOnceOrByThreads) {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{20} << 20U}) {
    SCOPED_TRACE(bytes);
    World world(options(1));
    Users users(world);
    std::vector<uint64_t> sizes;
    users.set("fill", [bytes](int32_t, const PulledFiring& firing) {
      graph::Slot& slot = *firing.outputs[0];
      slot.size_bytes = bytes - firing.generation.micro;
      slot.data[0] = slot.data[slot.size_bytes - 1] =
          static_cast<std::byte>(firing.generation.micro);
      return Status();
    });
    users.set("take", [&sizes](int32_t, const PulledFiring& firing) {
      const graph::Slot& slot = *firing.inputs[0];
      const auto micro = static_cast<std::byte>(firing.generation.micro);
      EXPECT_TRUE(slot.data[0] == micro && slot.data[slot.size_bytes - 1] == micro);
      sizes.push_back(slot.size_bytes);
      return Status();
    });
    std::vector<std::byte> a(bytes);
    std::vector<std::byte> b(bytes + 4);
    const LoadOptions own{.memory = {{0, {a}}, {1, {b}}}};
    ASSERT_TRUE(users.load(0, copying(bytes, 1), own).ok());
    EXPECT_EQ(copying_threads(), bytes == 4096 ? 0U : 1U);
    play_on(world, users, users.run_until(5));
    EXPECT_EQ(sizes, (std::vector{bytes, bytes - 1, bytes - 2, bytes - 3, bytes - 4}));
  }
  EXPECT_EQ(copying_threads(), 0U);
}

/// A folder for one test.
struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path + "/" + name; }
  const std::string path = ::testing::TempDir() + "corro-plans-" + std::to_string(getpid());
};

/// Rank 0 reads a file of ranges, and rank 1 writes them to another one.
Plan streaming(const std::string& from, const std::string& into, uint64_t bytes) {
  Plan plan;
  plan.ranks = 2;
  const LaneId in = plan.add_lane({.name = "in", .ranks = {0}});
  const LaneId out = plan.add_lane({.name = "out", .ranks = {1}});
  const ChannelId data = plan.add_channel({.name = "data", .slots = 2, .slot_bytes = bytes});
  plan.add_service({.name = "load", .lane = in, .outputs = {data}});
  plan.services.back().copy =
      CopySpec{.kind = CopyKind::kRead, .path = from, .offset = 3, .stride = bytes};
  plan.add_service({.name = "save", .lane = out, .inputs = {data}});
  plan.services.back().copy =
      CopySpec{.kind = CopyKind::kWrite, .path = into, .offset = 5, .stride = bytes, .count = 8};
  return plan;
}

TEST_P(Plans, AFileGoesThroughSlotsThatAreSmaller) {
  constexpr uint64_t kBytes = 10'000;
  const Folder folder;
  std::string text(10 * kBytes + 3, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 / 7);
  std::ofstream(folder.file("from"), std::ios::binary) << text;
  World world(options(2));
  Users users(world);
  users.load_all(streaming(folder.file("from"), folder.file("into"), kBytes));
  EXPECT_EQ(copying_threads(), 2U);
  play_on(world, users, users.run_until(10));
  // Ranges 8 and 9 have come where 0 and 1 had been.
  const std::string ranges = text.substr(3);
  EXPECT_EQ(
      io::read_small_file(folder.file("into")),
      std::string(5, '\0') + ranges.substr(8 * kBytes) + ranges.substr(2 * kBytes, 6 * kBytes));
}

TEST_P(Plans, WhatADiskRefusesStopsThePlanOnAllRanks) {
  const Folder folder;
  std::ofstream(folder.file("from")) << std::string(3 + 64 + 1, 'x');
  const std::string nowhere = folder.file("nowhere/into");
  const auto lines = [&](const std::string& from, const std::string& into) {
    World world(options(2));
    Users users(world);
    users.load_all(streaming(from, into, 64));
    const World::Works works = users.run_until(10);
    play_on(world, users, works);
    return std::vector{works[0]->status().to_string(), works[1]->status().to_string()};
  };
  const std::string failed = "NOT_FOUND: service save, epoch 0, micro-batch 0: cannot open " +
                             nowhere + " to write it: No such file or directory";
  const auto unsaved = lines("/dev/zero", nowhere);
  EXPECT_EQ(unsaved[1], failed);
  EXPECT_THAT(unsaved[0], AllOf(HasSubstr("rank 1 stopped the plan: service save, epoch 0, micro-"),
                                HasSubstr(nowhere)));
  const auto unread = lines(folder.file("from"), folder.file("into"));
  EXPECT_EQ(unread[0],
            "OUT_OF_RANGE: service load, epoch 0, micro-batch 1: cannot read 64 bytes of " +
                folder.file("from") + " at byte 67: it ends at 68");
  EXPECT_THAT(unread[1], HasSubstr("rank 0 stopped the plan: service load"));
  EXPECT_THAT(lines("/dev/zero", "/dev/full")[1], HasSubstr("No space left on device"));
}

TEST_P(Plans, CopiesThatAreUnderWayDoNotOutliveTheirPlan) {
  constexpr uint64_t kBytes = uint64_t{20} << 20U;
  for (int i = 0; i < 3; ++i) {
    World world(options(1));
    Users users(world);
    users.set("fill", [](int32_t, const PulledFiring&) { return Status(); });
    std::vector<std::byte> own(kBytes);
    ASSERT_TRUE(users.load(0, copying(kBytes, 1), {.memory = {{0, {own}}}}).ok());
    const World::Works works = users.run_until(2);
    world.poll_rounds(1);
    (void)users.compute();
    world.poll_rounds(1);
    world.engine(0).unload(world.engine(0).world(), users.plan(0));
    users.forget(0);
    EXPECT_EQ(copying_threads(), 0U);
    EXPECT_EQ(works[0]->status().code(), Code::kCancelled);
  }
}

TEST_P(Plans, ALaneOfCopiesHasNothingElse) {
  World world(options(1));
  Users users(world);
  Plan mixed = copying(64, 1);
  mixed.services[2].lane = 1;
  EXPECT_EQ(users.load(0, mixed).to_string(),
            "INVALID_ARGUMENT: plan: lane \"copies\" has copies and services that are none; give "
            "each a lane of its own");
}

// -- beside other operations ----------------------------------------------------------------------

TEST_P(Plans, OneShotsDoNotWaitForAPlanThatWaits) {
  World world(options(2));
  Users users(world);
  std::vector<float> sums;
  play_reducing(users, {0, 1}, sums);
  users.load_all(reducing(2, {0, 1}, 16));
  const World::Works waits = users.run_until(1);  // nobody computes yet
  world.poll_rounds(20);
  EXPECT_FALSE(waits[0]->done());
  for (const Status& status :
       world.run_all([](int32_t) { return collective::OpRequest{.kind = OpKind::kBarrier}; }))
    EXPECT_TRUE(status.ok()) << status.to_string();
  ASSERT_TRUE(users.play(waits));
  EXPECT_EQ(sums, (std::vector<float>{1, 1}));
}

TEST_P(Plans, SeveralPlansRunAtOnce) {
  World world(options(2));
  Users first(world);
  Users second(world);
  std::vector<float> sums;
  std::vector<std::vector<float>> seen;
  play_reducing(first, {0, 1}, sums);
  play_chain(second, 2, seen);
  first.load_all(reducing(2, {0, 1}, 16));
  second.load_all(chain(2, 64, 2));
  const World::Works one = first.run_until(3);
  const World::Works other = second.run_until(3);
  while (!second.play(other) || !first.play(one)) {
  }
  expect_chain(seen, 2, 3, 16);
  EXPECT_EQ(sums.size(), 6U);
}

// -- orders that are not synchronous --------------------------------------------------------------

/// Two ranks whose clocks may be at most `staleness` apart: each hands the other a token a step,
/// of which so many lie there at the start.
TEST_P(Plans, StalenessIsBoundedByTokens) {
  constexpr uint32_t kStaleness = 3;
  Plan plan;
  plan.ranks = 2;
  for (uint32_t r = 0; r < 2; ++r) plan.add_lane({.name = "cpu" + std::to_string(r), .ranks = {r}});
  const ChannelId there =
      plan.add_channel({.name = "there", .slots = kStaleness, .initial = kStaleness});
  const ChannelId back =
      plan.add_channel({.name = "back", .slots = kStaleness, .initial = kStaleness});
  plan.add_service({.name = "step0", .lane = 0, .inputs = {back}, .outputs = {there}});
  plan.add_service({.name = "step1", .lane = 1, .inputs = {there}, .outputs = {back}});

  World world(options(2));
  Users users(world);
  std::vector<uint32_t> steps(2);
  uint32_t furthest = 0;
  for (size_t r = 0; r < 2; ++r) {
    users.set("step" + std::to_string(r), [&, r](int32_t, const PulledFiring&) {
      ++steps[r];
      furthest = std::max(furthest, steps[0] > steps[1] ? steps[0] - steps[1] : 0);
      return Status();
    });
  }
  users.load_all(plan);
  const World::Works works = users.run_until(kMany);
  // The second rank stands still: the first gets as far as the tokens go, and no further.
  world.stop(1);
  users.forget(1);
  EXPECT_FALSE(users.play(works));
  EXPECT_EQ(steps[0], kStaleness);
  EXPECT_EQ(furthest, kStaleness);
}

/// One token goes round: at no time do two ranks run.
TEST_P(Plans, ATokenRingLetsOneRankRunAtATime) {
  constexpr uint32_t kRanks = 4;
  Plan plan;
  plan.ranks = kRanks;
  for (uint32_t r = 0; r < kRanks; ++r) {
    plan.add_lane({.name = "cpu" + std::to_string(r), .ranks = {r}});
    plan.add_channel(
        {.name = "to" + std::to_string((r + 1) % kRanks), .initial = r + 1 == kRanks ? 1U : 0U});
  }
  for (uint32_t r = 0; r < kRanks; ++r) {
    plan.add_service({.name = "turn" + std::to_string(r),
                      .lane = r,
                      .inputs = {(r + kRanks - 1) % kRanks},
                      .outputs = {r}});
  }
  World world(options(kRanks));
  Users users(world);
  std::vector<uint32_t> turns;
  for (uint32_t r = 0; r < kRanks; ++r) {
    users.set("turn" + std::to_string(r), [&turns, r](int32_t, const PulledFiring&) {
      turns.push_back(r);
      return Status();
    });
  }
  users.load_all(plan);
  ASSERT_TRUE(users.play(users.run_until(5)));
  ASSERT_EQ(turns.size(), 5 * kRanks);
  for (uint32_t i = 0; i < turns.size(); ++i) EXPECT_EQ(turns[i], i % kRanks) << i;
}

// -- failure --------------------------------------------------------------------------------------

TEST_P(Plans, AFailedServiceStopsThePlanOnAllRanks) {
  World world(options(3));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 3, seen);
  users.set("stage1", [](int32_t, const PulledFiring& firing) {
    if (firing.generation.micro < 2) return Status();
    return Status(Code::kInternal, "the loss is not finite");
  });
  users.load_all(chain(3, 64, 2));
  const World::Works works = users.run_until(10);
  ASSERT_TRUE(users.play(works));
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kInternal);
    EXPECT_THAT(work->status().message(),
                AllOf(HasSubstr("service stage1"), HasSubstr("micro-batch 2"),
                      HasSubstr("the loss is not finite")));
  }
  EXPECT_THAT(works[0]->status().message(), HasSubstr("rank 1 stopped the plan"));
  EXPECT_EQ(users.plan(0).run_until(11)->status().code(), Code::kInternal);
  // The group goes on, and so does another run of the plan.
  for (int32_t r = 0; r < 3; ++r) world.engine(r).unload(world.engine(r).world(), users.plan(r));
  seen.clear();
  play_chain(users, 3, seen);
  users.load_all(chain(3, 64, 2));
  ASSERT_TRUE(users.play(users.run_until(4)));
  expect_chain(seen, 3, 4, 16);
}

/// Boards show a failure before STOP says why, and who has heard it may leave at once.
TEST_P(Plans, TheFailedServiceIsNamedToAllHoweverTheyLearnOfIt) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    WorldOptions seeded = options(4);
    seeded.seed = seed;
    World world(seeded);
    Users users(world);
    std::vector<float> sums;
    play_reducing(users, {0, 1, 2, 3}, sums);
    users.set("use3", [](int32_t, const PulledFiring& firing) {
      return firing.generation.micro < 2 ? Status() : Status(Code::kInternal, "not finite");
    });
    users.load_all(reducing(4, {0, 1, 2, 3}, 5000));
    const World::Works works = users.run_until(10);
    std::array<bool, 4> left{};
    for (int turn = 0; turn < 10'000 && !std::ranges::all_of(left, std::identity()); ++turn) {
      world.poll_rounds(1);
      (void)users.compute();
      for (size_t r = 0; r < left.size(); ++r) {
        if (left[r] || !works[r]->done()) continue;
        left[r] = true;
        EXPECT_THAT(works[r]->status().message(),
                    AllOf(HasSubstr("service use3"), HasSubstr("micro-batch 2: not finite")))
            << "rank " << r << ", seed " << seed;
        users.forget(static_cast<int32_t>(r));
        world.engine(static_cast<int32_t>(r)).close();
      }
      if (turn % 100 == 99) world.pass_time(std::chrono::milliseconds(50));
    }
    EXPECT_TRUE(std::ranges::all_of(left, std::identity())) << "seed " << seed;
  }
}

TEST_P(Plans, ARankThatIsLateForTheDeadlineIsNamed) {
  World world(options(2));
  Users users(world);
  std::vector<float> sums;
  play_reducing(users, {0, 1}, sums);
  users.load_all(reducing(2, {0, 1}, 16), {.timeout = std::chrono::seconds(7)});
  const World::Works works = users.run_until(1);
  world.poll_rounds(10);
  for (int32_t lane = 1; lane < 3; ++lane) {  // rank 0 computes, rank 1 does not
    runtime::PulledLane* pulled = users.plan(0).part().pulled_lane(static_cast<LaneId>(lane));
    if (pulled == nullptr) continue;
    const auto firing = pulled->next({});
    ASSERT_TRUE(firing.ok());
    ASSERT_TRUE(pulled->done(*firing, {}).ok());
  }
  world.run(works);
  EXPECT_GE(world.now() - Time{}, std::chrono::seconds(7));
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded) << work->status().to_string();
    EXPECT_THAT(work->status().message(),
                AllOf(HasSubstr("service reduce"), HasSubstr("micro-batch 0")));
  }
  EXPECT_THAT(works[0]->status().message(), HasSubstr("waited for rank 1"));
  EXPECT_THAT(works[1]->status().message(),
              AllOf(HasSubstr("rank 1 was late: rank 0 waited for it for 7 s"),
                    Not(HasSubstr("for rank 1"))));
}

TEST_P(Plans, ARankThatIsLateWithAChannelIsToldSo) {
  World world(options(2));
  Users users(world);
  users.load_all(chain(2, 64, 1), {.timeout = std::chrono::seconds(7)});
  const World::Works works = users.run_until(1);  // Nobody computes what rank 1 waits for.
  world.run(works);
  EXPECT_THAT(works[1]->status().message(), HasSubstr("waited for rank 0 for 7 s"));
  EXPECT_THAT(works[0]->status().message(),
              AllOf(HasSubstr("rank 1 stopped the plan: service c0 from rank 0"),
                    HasSubstr("rank 0 was late: rank 1 waited for it for 7 s"),
                    Not(HasSubstr("waited for rank 0"))));
}

TEST_P(Plans, AFiringThatNoThreadServesIsLateUnlessOneComputes) {
  World world(options(2));
  Users users(world);
  Plan plan;
  plan.ranks = 2;
  for (const uint32_t rank : {0U, 0U, 1U})
    plan.add_lane({.name = "cpu" + std::to_string(plan.lanes.size()), .ranks = {rank}});
  for (const LaneId lane : {0U, 1U, 2U})
    plan.add_service({.name = "work" + std::to_string(lane), .lane = lane});
  users.load_all(plan, {.timeout = std::chrono::seconds(7)});
  const World::Works works = users.run_until(1);
  const auto wait = [&world, &users] {
    world.pass_time(std::chrono::seconds(100));
    users.plan(0).check_served(world.now());
    return users.plan(0).status();
  };
  world.poll_rounds(10);
  runtime::PulledLane& served = *users.plan(0).part().pulled_lane(0);
  const auto firing = served.next({});
  ASSERT_TRUE(firing.ok());
  EXPECT_TRUE(wait().ok()) << "a thread computes";
  EXPECT_TRUE(wait().ok());
  ASSERT_TRUE(served.done(*firing, {}).ok());
  world.poll_rounds(10);
  EXPECT_EQ(wait().code(), Code::kDeadlineExceeded);
  world.run(works);
  for (const auto& work : works) {
    EXPECT_THAT(work->status().message(),
                HasSubstr("service work1, micro-batch 0: waited for a thread of rank 0 that serves "
                          "lane cpu1 for 100 s"));
  }
}

TEST_P(Plans, WhatCannotRunIsRefusedInOneLine) {
  World world(options(2));
  Users users(world);
  EXPECT_EQ(users.load(0, chain(3, 64, 1)).to_string(),
            "INVALID_ARGUMENT: the plan is of 3 ranks, the group of 2");

  Plan small = reducing(2, {0, 1}, 16);
  small.channels[0].slot_bytes = 12;
  EXPECT_EQ(users.load(0, small).to_string(),
            "INVALID_ARGUMENT: plan: service \"reduce\" needs 64 bytes of channel \"sum\", whose "
            "slots have 12");

  Plan twice = reducing(2, {0, 1}, 16);
  twice.services.back().inputs.push_back(twice.add_channel({.name = "second", .slot_bytes = 64}));
  twice.add_service({.name = "more", .lane = 1, .outputs = {twice.services.back().inputs.back()}});
  EXPECT_EQ(
      users.load(0, twice).to_string(),
      "INVALID_ARGUMENT: plan: service \"reduce\" has several inputs with memory on one rank; "
      "a collective uses one");

  Plan large = chain(2, graph::kMostSlotBytes, 4);
  EXPECT_EQ(users.load(0, large).code(), Code::kResourceExhausted);
}

/// A member dies in the middle; the others agree where they are and go on without it.
TEST_P(Plans, SurvivorsGoOnWithAPlanForThoseThatAreLeft) {
  World world(options(3));
  Users users(world);
  std::vector<float> sums;
  play_reducing(users, {0, 1, 2}, sums);
  users.load_all(reducing(3, {0, 1, 2}, 1000));
  const World::Works works = users.run_until(kMany);
  while (users.plan(0).completed() < 5) {
    world.poll_rounds(1);
    users.compute();
  }
  world.kill(1);
  users.forget(1);
  (void)users.play({works[0], works[2]});
  for (const size_t r : {0UL, 2UL}) {
    ASSERT_TRUE(works[r]->done());
    EXPECT_EQ(works[r]->status().code(), Code::kUnavailable);
    EXPECT_THAT(works[r]->status().message(),
                AllOf(HasSubstr("rank 1"), HasSubstr("micro-batch"), HasSubstr("service")));
  }

  const std::vector<int32_t> left{0, 2};
  std::vector<runtime::Group*> groups;
  for (const int32_t r : left) groups.push_back(world.engine(r).create_group(left).value());
  const uint32_t first = std::min(users.plan(0).completed(), users.plan(2).completed());
  EXPECT_GE(first, 4U);
  sums.clear();
  play_reducing(users, {0, 1}, sums);
  const Plan smaller = reducing(2, {0, 1}, 1000);
  World::Works rest;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSERT_TRUE(users.load(left[i], *groups[i], smaller, {.first = first}).ok());
    rest.push_back(users.plan(left[i]).run_until(first + 3));
  }
  ASSERT_TRUE(users.play(rest));
  EXPECT_EQ(sums.size(), 6U);
  EXPECT_EQ(sums[0], static_cast<float>(first) * 20 + 2);
}

TEST_P(Plans, AFiringCanBeDoneOnce) {
  World world(options(1));
  Users users(world);
  Plan plan;
  plan.add_lane({.name = "cpu"});
  plan.add_service({.name = "work", .lane = 0});
  users.load_all(plan);
  const World::Works works = users.run_until(2);
  world.poll_rounds(1);
  runtime::PulledLane& lane = *users.plan(0).part().pulled_lane(0);
  const auto firing = lane.next({});
  ASSERT_TRUE(firing.ok());
  EXPECT_TRUE(lane.done(*firing, {}).ok());
  EXPECT_EQ(lane.done(*firing, {}).code(), Code::kFailedPrecondition);
  world.poll_rounds(1);
  EXPECT_EQ(lane.done(*firing, {}).code(), Code::kFailedPrecondition) << "its successor is another";
  EXPECT_EQ(lane.next({})->generation.micro, 1U);
}

// -- what others see ------------------------------------------------------------------------------

/// "stage1 2 of cpu1: done" of each record, in order; of operations that are no firings none.
std::vector<std::string> firings_of(World& world, int32_t rank) {
  std::vector<std::string> shown;
  for (const obs::OpSnapshot& op : world.engine(rank).recorder().snapshot().recent) {
    if (op.is_firing())
      shown.push_back(
          fmt::format("{} {} of {}: {}", op.name, op.op.op_id, op.plan_lane, name_of(op.phase)));
  }
  return shown;
}

TEST_P(Plans, EveryFiringHasItsRecord) {
  World world(options(3));
  Users users(world);
  std::vector<std::vector<float>> seen;
  play_chain(users, 3, seen);
  users.load_all(chain(3, 16, 1));
  ASSERT_TRUE(users.play(users.run_until(3)));
  std::vector<std::string> wanted;
  for (const char* micro : {"0", "1", "2"}) {
    wanted.push_back(fmt::format("stage1 {} of cpu1: done", micro));
    wanted.push_back(fmt::format("c0 from rank 0 {} of c0 from rank 0: done", micro));
    wanted.push_back(fmt::format("c1 to rank 2 {} of c1 to rank 2: done", micro));
  }
  EXPECT_THAT(firings_of(world, 1), ::testing::UnorderedElementsAreArray(wanted));
}

TEST_P(Plans, CollectivesAreFiringsInTheirRecords) {
  World world(options(2));
  Users users(world);
  std::vector<float> sums;
  play_reducing(users, {0, 1}, sums);
  users.load_all(reducing(2, {0, 1}, 16));
  ASSERT_TRUE(users.play(users.run_until(2)));
  EXPECT_THAT(firings_of(world, 0),
              ::testing::UnorderedElementsAre("fill0 0 of cpu0: done", "fill0 1 of cpu0: done",
                                              "reduce 0 of dp: done", "reduce 1 of dp: done",
                                              "use0 0 of cpu0: done", "use0 1 of cpu0: done"));
  for (const obs::OpSnapshot& op : world.engine(0).recorder().snapshot().recent) {
    EXPECT_EQ(op.op.kind.has_value(), op.name == "reduce");
    EXPECT_TRUE(op.is_firing()) << op.name << " is there twice";
  }
}

TEST_P(Plans, TheRecordOfAFiringInFlightSaysSoAndEndsWithThePlan) {
  World world(options(2));
  Users users(world);
  users.load_all(reducing(2, {0, 1}, 16));
  const World::Works works = users.run_until(1);
  world.poll_rounds(20);
  EXPECT_THAT(firings_of(world, 0), ::testing::ElementsAre("fill0 0 of cpu0: run"));
  runtime::PulledLane& lane = *users.plan(1).part().pulled_lane(2);
  const auto taken = lane.next({});
  ASSERT_TRUE(taken.ok());
  users.plan(0).stop({Code::kCancelled, "enough"}, world.now());
  world.run(works);
  EXPECT_THAT(firings_of(world, 0), ::testing::ElementsAre("fill0 0 of cpu0: failed"))
      << "nobody has taken it";
  EXPECT_THAT(firings_of(world, 1), ::testing::ElementsAre("fill1 0 of cpu1: run"))
      << "a thread has it";
  EXPECT_TRUE(lane.done(*taken, {}).ok());
  world.poll_rounds(20);
  EXPECT_THAT(firings_of(world, 1), ::testing::ElementsAre("fill1 0 of cpu1: done"));
}

TEST_P(Plans, AnUnloadedPlanLeavesNoFiringInFlight) {
  World world(options(2));
  Users users(world);
  users.load_all(reducing(2, {0, 1}, 16));
  (void)users.run_until(1);
  world.poll_rounds(20);
  runtime::PulledLane& lane = *users.plan(0).part().pulled_lane(1);
  ASSERT_TRUE(lane.next({}).ok());
  world.engine(0).unload(world.engine(0).world(), users.plan(0));
  users.forget(0);
  EXPECT_THAT(firings_of(world, 0), ::testing::ElementsAre("fill0 0 of cpu0: failed"));
}

TEST_P(Plans, UpTo64CollectivesOfALaneAreInFlight) {
  constexpr size_t kServices = 70;
  World world(options(2));
  Users users(world);
  Plan plan;
  plan.ranks = 2;
  const LaneId lane = plan.add_lane(
      {.name = "all", .order = graph::LaneOrder::kAgreed, .depth = 100, .ranks = {0, 1}});
  for (size_t i = 0; i < kServices; ++i) {
    plan.add_service({.name = fmt::format("barrier{}", i),
                      .lane = lane,
                      .operation = graph::OperationSpec{.kind = OpKind::kBarrier}});
  }
  users.load_all(plan);
  world.stop(1);
  const World::Works works = users.run_until(1);
  world.poll_rounds(20);
  EXPECT_EQ(firings_of(world, 0).size(), 64U);
  world.resume(1);
  ASSERT_TRUE(users.play(works));
  EXPECT_EQ(firings_of(world, 0).size(), kServices);
}

INSTANTIATE_TEST_SUITE_P(All, Plans, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
