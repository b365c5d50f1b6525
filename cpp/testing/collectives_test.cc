// Every collective on every path: against a slow reference, for many sizes, types and roots. The
// suite Topologies is the conformance of transports: whatever a group's fabric is chosen from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

/// Where buffers are: private memory that peers can read, or cannot; arenas; arenas of odd ranks
/// only.
enum class Memory { kPrivate, kStaged, kArena, kMixed };

std::string_view name_of(Memory memory) {
  constexpr std::array<std::string_view, 4> kNames = {"private", "staged", "arena", "mixed"};
  return kNames[static_cast<size_t>(memory)];
}

struct Case {
  int32_t size;
  bool board;
  uint64_t count;
  Memory memory;
  std::string_view rules = {};  ///< As in CORRO_ALGORITHMS.
  std::string_view hosts = {};  ///< Of each rank; empty: all on one.
};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  const std::string_view algorithm = c.rules.substr(c.rules.rfind('=') + 1);
  const std::string ranks =
      c.hosts.empty() ? fmt::format("{}_ranks", c.size) : fmt::format("hosts_{}", c.hosts);
  return fmt::format("{}_{}_{}_{}{}{}", ranks, c.board ? "board" : "streams", c.count,
                     name_of(c.memory), algorithm.empty() ? "" : "_", algorithm);
}

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  Collectives()
      : world_({.size = GetParam().size,
                .seed = 7,
                .board = GetParam().board,
                .hosts = hosts_of(GetParam().hosts),
                .private_reads = GetParam().memory != Memory::kStaged,
                .short_moves = !GetParam().hosts.empty() && GetParam().count < 100,
                .selection = selection()}) {}
  [[nodiscard]] static collective::SelectionTable selection() {
    return {.rules = collective::parse_selection_rules(GetParam().rules).value()};
  }

  [[nodiscard]] int32_t size() const { return GetParam().size; }
  [[nodiscard]] uint64_t count() const { return GetParam().count; }

  /// A buffer of rank r in the kind of memory under test, filled by `fill(i)`.
  float* buffer(int32_t rank, uint64_t elements, const std::function<float(uint64_t)>& fill) {
    float* data = nullptr;
    const bool mixed = GetParam().memory == Memory::kMixed && rank % 2 == 1;
    if (GetParam().memory == Memory::kArena || mixed) {
      data = reinterpret_cast<float*>(
          world_.engine(rank).segment()->allocate(elements * 4 + 4).value());
    } else {
      owned_.push_back(std::make_unique<std::vector<float>>(elements + 1));
      data = owned_.back()->data();
    }
    for (uint64_t i = 0; i < elements; ++i) data[i] = fill(i);
    return data;
  }
  static float value(int32_t rank, uint64_t i) {
    return static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13) % 101);
  }
  static OpRequest request(OpKind kind, const float* input, float* output, uint64_t n) {
    OpRequest made;
    made.kind = kind;
    made.dtype = DType::kF32;
    made.input = reinterpret_cast<const std::byte*>(input);
    made.output = reinterpret_cast<std::byte*>(output);
    made.count = n;
    return made;
  }
  void expect_all_ok(const std::vector<Status>& results) {
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  }
  /// Runs one operation with fresh buffers: `in(r)` elements in, `out(r)` out; returns the outputs.
  std::vector<float*> run(OpKind kind, const std::function<uint64_t(int32_t)>& in,
                          const std::function<uint64_t(int32_t)>& out,
                          const std::function<void(int32_t, OpRequest&)>& adjust = {}) {
    std::vector<float*> inputs, outputs;
    for (int32_t r = 0; r < size(); ++r) {
      inputs.push_back(buffer(r, in(r), [r](uint64_t i) { return value(r, i); }));
      outputs.push_back(buffer(r, out(r), [](uint64_t) { return -1.0F; }));
    }
    expect_all_ok(world_.run_all([&](int32_t r) {
      OpRequest made =
          request(kind, inputs[static_cast<size_t>(r)], outputs[static_cast<size_t>(r)], count());
      if (adjust) adjust(r, made);
      return made;
    }));
    return outputs;
  }
  [[nodiscard]] float sum(uint64_t i) const {
    float total = 0;
    for (int32_t r = 0; r < size(); ++r) total += value(r, i);
    return total;
  }
  /// Uneven counts with zeros among them.
  [[nodiscard]] std::vector<uint64_t> uneven() const {
    std::vector<uint64_t> counts;
    for (int32_t r = 0; r < size(); ++r)
      counts.push_back(r % 3 == 1 ? 0 : count() + static_cast<uint64_t>(r));
    return counts;
  }
  /// Compares n elements with what `expected(i)` says; names the first that differs.
  static void expect_values(const float* got, uint64_t n,
                            const std::function<float(uint64_t)>& expected) {
    for (uint64_t i = 0; i < n; ++i) {
      if (got[i] != expected(i)) {
        ADD_FAILURE() << "element " << i << " of " << n << ": got " << got[i] << ", expected "
                      << expected(i);
        return;
      }
    }
  }
  static uint64_t total(const std::vector<uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  }
  static uint64_t start(const std::vector<uint64_t>& counts, int32_t rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
  }

  World world_;
  std::vector<std::unique_ptr<std::vector<float>>> owned_;
};

TEST_P(Collectives, AllreduceSums) {
  const auto outputs =
      run(OpKind::kAllreduce, [&](int32_t) { return count(); }, [&](int32_t) { return count(); });
  for (const float* output : outputs) {
    expect_values(output, count(), [&](uint64_t i) { return sum(i); });
  }
}

TEST_P(Collectives, AllreduceInPlaceAveragesAndScales) {
  std::vector<float*> buffers;
  for (int32_t r = 0; r < size(); ++r) {
    buffers.push_back(buffer(r, count(), [r](uint64_t i) { return value(r, i); }));
  }
  expect_all_ok(world_.run_all([&](int32_t r) {
    float* data = buffers[static_cast<size_t>(r)];
    OpRequest made = request(OpKind::kAllreduce, data, data, count());
    made.reduce_op = ReduceOp::kAverage;
    made.prescale = 2;
    made.postscale = 0.5;
    return made;
  }));
  for (const float* data : buffers) {
    // The factors are powers of two: no rounding but that of 1/P.
    expect_values(data, count(), [&](uint64_t i) {
      const float third = static_cast<float>(0.5 / size());
      return 2 * sum(i) * third;
    });
  }
}

template <typename T>
class Averages {
 public:
  Averages(World& world, DType dtype, uint64_t count, T value)
      : world_(world), dtype_(dtype), count_(count), value_(value) {}

  /// Every rank gives the same: that is the average.
  void expect_right(OpKind kind) {
    const auto ranks = static_cast<uint64_t>(world_.size());
    const uint64_t in = kind == OpKind::kReducescatter ? count_ * ranks : count_;
    std::vector<std::vector<T>> inputs(ranks, std::vector<T>(in, value_));
    std::vector<std::vector<T>> outputs(ranks, std::vector<T>(count_));
    const auto results = world_.run_all([&](int32_t r) {
      const auto i = static_cast<size_t>(r);
      return OpRequest{.kind = kind,
                       .dtype = dtype_,
                       .reduce_op = ReduceOp::kAverage,
                       .input = reinterpret_cast<const std::byte*>(inputs[i].data()),
                       .output = reinterpret_cast<std::byte*>(outputs[i].data()),
                       .count = count_};
    });
    for (const Status& result : results) ASSERT_TRUE(result.ok()) << result.to_string();
    const size_t takers = kind == OpKind::kReduce ? 1 : ranks;
    for (size_t r = 0; r < takers; ++r) {
      EXPECT_EQ(outputs[r], std::vector<T>(count_, value_)) << name_of(kind) << " " << r;
    }
  }

 private:
  World& world_;
  DType dtype_;
  uint64_t count_;
  T value_;
};

TEST_P(Collectives, AveragesOfIntegersWhoseSumDoesNotFitAreRight) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter, OpKind::kReduce}) {
    Averages<uint8_t>(world_, DType::kU8, count(), 200).expect_right(kind);
    Averages<int8_t>(world_, DType::kI8, count(), -100).expect_right(kind);
    Averages<int16_t>(world_, DType::kI16, count(), 30'000).expect_right(kind);
    Averages<int32_t>(world_, DType::kI32, count(), -2'000'000'000).expect_right(kind);
    Averages<int64_t>(world_, DType::kI64, count(), INT64_MAX).expect_right(kind);
    Averages<uint16_t>(world_, DType::kU16, count(), 60'000).expect_right(kind);
    Averages<uint32_t>(world_, DType::kU32, count(), 4'000'000'000).expect_right(kind);
    Averages<uint64_t>(world_, DType::kU64, count(), UINT64_MAX).expect_right(kind);
  }
}

TEST_P(Collectives, AllgatherConcatenates) {
  const auto outputs = run(
      OpKind::kAllgather, [&](int32_t) { return count(); },
      [&](int32_t) { return count() * static_cast<uint64_t>(size()); });
  for (const float* output : outputs) {
    for (int32_t r = 0; r < size(); ++r) {
      expect_values(output + static_cast<uint64_t>(r) * count(), count(),
                    [&](uint64_t i) { return value(r, i); });
    }
  }
}

TEST_P(Collectives, AllgatherTakesUnevenCounts) {
  const auto counts = uneven();
  const auto outputs = run(
      OpKind::kAllgather, [&](int32_t r) { return counts[static_cast<size_t>(r)]; },
      [&](int32_t) { return total(counts); },
      [&](int32_t r, OpRequest& made) {
        made.counts = counts;
        made.count = counts[static_cast<size_t>(r)];
      });
  for (const float* output : outputs) {
    for (int32_t r = 0; r < size(); ++r) {
      expect_values(output + start(counts, r), counts[static_cast<size_t>(r)],
                    [&](uint64_t i) { return value(r, i); });
    }
  }
}

TEST_P(Collectives, ReducescatterGivesEachItsSlice) {
  const auto ranks = static_cast<uint64_t>(size());
  const auto outputs = run(
      OpKind::kReducescatter, [&](int32_t) { return count() * ranks; },
      [&](int32_t) { return count(); });
  for (int32_t r = 0; r < size(); ++r) {
    expect_values(outputs[static_cast<size_t>(r)], count(),
                  [&](uint64_t i) { return sum(static_cast<uint64_t>(r) * count() + i); });
  }
}

TEST_P(Collectives, ReducescatterTakesUnevenCounts) {
  const auto counts = uneven();
  const auto outputs = run(
      OpKind::kReducescatter, [&](int32_t) { return total(counts); },
      [&](int32_t r) { return counts[static_cast<size_t>(r)]; },
      [&](int32_t, OpRequest& made) { made.counts = counts; });
  for (int32_t r = 0; r < size(); ++r) {
    const uint64_t first = start(counts, r);
    expect_values(outputs[static_cast<size_t>(r)], counts[static_cast<size_t>(r)],
                  [&](uint64_t i) { return sum(first + i); });
  }
}

TEST_P(Collectives, AlltoallTransposes) {
  const auto ranks = static_cast<uint64_t>(size());
  const auto outputs = run(
      OpKind::kAlltoall, [&](int32_t) { return count() * ranks; },
      [&](int32_t) { return count() * ranks; });
  for (int32_t r = 0; r < size(); ++r) {
    for (int32_t from = 0; from < size(); ++from) {
      expect_values(
          outputs[static_cast<size_t>(r)] + static_cast<uint64_t>(from) * count(), count(),
          [&](uint64_t i) { return value(from, static_cast<uint64_t>(r) * count() + i); });
    }
  }
}

TEST_P(Collectives, AlltoallTakesUnevenCounts) {
  // Rank a sends to rank b count + a + 2b elements, or none when a + b is a multiple of 3.
  const auto pair_count = [&](int32_t from, int32_t to) -> uint64_t {
    return (from + to) % 3 == 0 ? 0 : count() + static_cast<uint64_t>(from + 2 * to);
  };
  const auto sends = [&](int32_t r) {
    std::vector<uint64_t> counts;
    for (int32_t d = 0; d < size(); ++d) counts.push_back(pair_count(r, d));
    return counts;
  };
  const auto receives = [&](int32_t r) {
    std::vector<uint64_t> counts;
    for (int32_t s = 0; s < size(); ++s) counts.push_back(pair_count(s, r));
    return counts;
  };
  const auto outputs = run(
      OpKind::kAlltoall, [&](int32_t r) { return total(sends(r)); },
      [&](int32_t r) { return total(receives(r)); },
      [&](int32_t r, OpRequest& made) {
        made.send_counts = sends(r);
        made.counts = receives(r);
      });
  for (int32_t r = 0; r < size(); ++r) {
    for (int32_t from = 0; from < size(); ++from) {
      const uint64_t sent_at = start(sends(from), r);
      expect_values(outputs[static_cast<size_t>(r)] + start(receives(r), from), pair_count(from, r),
                    [&](uint64_t i) { return value(from, sent_at + i); });
    }
  }
}

TEST_P(Collectives, RootedOperationsWorkForEveryRoot) {
  const auto ranks = static_cast<uint64_t>(size());
  const int32_t stride = kSanitized ? std::max(1, size() - 1) : size() > 3 ? 3 : 1;
  for (int32_t root = 0; root < size(); root += stride) {
    const auto with_root = [root](int32_t, OpRequest& made) { made.root = root; };
    const auto one = [&](int32_t) { return count(); };
    const auto all = [&](int32_t) { return count() * ranks; };

    const auto broadcast = run(OpKind::kBroadcast, one, one, with_root);
    const auto reduced = run(OpKind::kReduce, one, one, with_root);
    const auto gathered = run(OpKind::kGather, one, all, with_root);
    const auto scattered = run(OpKind::kScatter, all, one, with_root);
    for (int32_t r = 0; r < size(); ++r) {
      const auto at = static_cast<size_t>(r);
      expect_values(broadcast[at], count(), [&](uint64_t i) { return value(root, i); });
      expect_values(scattered[at], count(), [&](uint64_t i) {
        return value(root, static_cast<uint64_t>(r) * count() + i);
      });
      if (r != root) continue;
      expect_values(reduced[at], count(), [&](uint64_t i) { return sum(i); });
      for (int32_t from = 0; from < size(); ++from) {
        expect_values(gathered[at] + static_cast<uint64_t>(from) * count(), count(),
                      [&](uint64_t i) { return value(from, i); });
      }
    }
  }
}

TEST_P(Collectives, ARootWhereThereIsNoneMeansNothing) {
  const auto outputs = run(
      OpKind::kAllreduce, [&](int32_t) { return count(); }, [&](int32_t) { return count(); },
      [&](int32_t r, OpRequest& made) { made.root = 7 * r + size(); });
  for (const float* output : outputs) {
    expect_values(output, count(), [&](uint64_t i) { return sum(i); });
  }
}

TEST_P(Collectives, BarrierCompletes) {
  expect_all_ok(world_.run_all([&](int32_t) { return OpRequest{.kind = OpKind::kBarrier}; }));
}

TEST_P(Collectives, NeighboursExchange) {
  if (size() == 1) return;  // nobody to talk to
  std::vector<float*> inputs, outputs;
  World::Works works;
  for (int32_t r = 0; r < size(); ++r) {
    inputs.push_back(buffer(r, count(), [r](uint64_t i) { return value(r, i); }));
    outputs.push_back(buffer(r, count(), [](uint64_t) { return -1.0F; }));
    OpRequest send = request(OpKind::kSend, inputs.back(), nullptr, count());
    send.root = (r + 1) % size();
    send.tag = 5;
    OpRequest recv = request(OpKind::kRecv, nullptr, outputs.back(), count());
    recv.root = (r + size() - 1) % size();
    recv.tag = 5;
    works.push_back(world_.submit(r, {send, recv}));
  }
  world_.run(works);
  for (int32_t r = 0; r < size(); ++r) {
    ASSERT_TRUE(works[static_cast<size_t>(r)]->status().ok())
        << works[static_cast<size_t>(r)]->status().to_string();
    expect_values(outputs[static_cast<size_t>(r)], count(),
                  [&](uint64_t i) { return value((r + size() - 1) % size(), i); });
  }
}

TEST_P(Collectives, ManyInFlightKeepTheirOrder) {
  constexpr int kOps = 50;
  std::vector<std::vector<float>> data(static_cast<size_t>(size() * kOps));
  World::Works works;
  for (int32_t r = 0; r < size(); ++r) {
    for (int op = 0; op < kOps; ++op) {
      auto& own = data[static_cast<size_t>(r * kOps + op)];
      own.assign(count() % 4096 + 1, static_cast<float>(op + r));
      works.push_back(
          world_.submit(r, {request(OpKind::kAllreduce, own.data(), own.data(), own.size())}));
    }
  }
  world_.run(works);
  for (int32_t r = 0; r < size(); ++r) {
    for (int op = 0; op < kOps; ++op) {
      const float expected = static_cast<float>(op * size() + size() * (size() - 1) / 2);
      for (const float x : data[static_cast<size_t>(r * kOps + op)]) ASSERT_EQ(x, expected);
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  std::vector<int32_t> sizes = {1, 2, 5};
  if (!kSanitized) sizes.insert(sizes.end(), {3, 8});
  for (const int32_t size : sizes) {
    for (const uint64_t count : {0U, 1U, 9U, 5001U, 40001U}) {
      for (const bool board : {true, false}) {
        all.push_back({size, board, count, Memory::kPrivate});
      }
      all.push_back({size, true, count, Memory::kArena});
      if (count < 5001) continue;  // in a line or a slot, wherever it was
      all.push_back({size, true, count, Memory::kStaged});
      all.push_back({size, true, count, Memory::kMixed});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::ValuesIn(cases()), name_of_case);

/// Sizes around the borders of chunks: a piece of a vector has 64 Ki elements, that of a block a
/// fraction of it.
std::vector<Case> two_level_cases() {
  std::vector<Case> all;
  for (const std::string_view hosts :
       {"0011", "00001111", "00112233", "0001", "011222", "0101", "0120120"}) {
    const auto size = static_cast<int32_t>(hosts.size());
    for (const uint64_t count : {0U, 1U, 9U, 5001U})
      all.push_back({size, true, count, Memory::kPrivate, kTwoLevelEverywhere, hosts});
  }
  for (const std::string_view hosts : {"0011", "010"}) {
    const auto size = static_cast<int32_t>(hosts.size());
    for (const uint64_t count : {16383U, 65536U, 70001U})
      all.push_back({size, true, count, Memory::kPrivate, kTwoLevelEverywhere, hosts});
    all.push_back({size, true, 40001, Memory::kMixed, kTwoLevelEverywhere, hosts});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(TwoLevel, Collectives, ::testing::ValuesIn(two_level_cases()),
                         name_of_case);

/// Every transport with every form of hosts: one; one rank each; uneven ones; one whose ranks are
/// no neighbours. By the default choice of algorithms, and where the user asks for two levels.
std::vector<Case> topologies() {
  std::vector<Case> all;
  for (const bool board : {true, false}) {
    for (const std::string_view hosts : {"000", "012", "001", "000112", "0110"}) {
      const auto size = static_cast<int32_t>(hosts.size());
      for (const std::string_view rules : {std::string_view(), kTwoLevelEverywhere}) {
        for (const uint64_t count : {1U, 20001U})
          all.push_back({size, board, count, Memory::kPrivate, rules, hosts});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Topologies, Collectives, ::testing::ValuesIn(topologies()), name_of_case);

/// More ranks than a board has room for on one host, and one rank on another.
TEST(Topologies, AHostWithMoreRanksThanABoardHasExchangesMessages) {
  std::vector<int32_t> hosts(collective::kMaxBoardRanks + 2);
  hosts.back() = 1;
  const auto size = static_cast<int32_t>(hosts.size());
  World world({.size = size, .hosts = hosts, .heap_bytes = 4096, .stream_bytes = 1024});
  std::vector<int32_t> data(hosts.size(), 1);
  for (const Status& result : world.run_all([&](int32_t r) {
         OpRequest made{.kind = OpKind::kAllreduce, .dtype = DType::kI32};
         made.output = reinterpret_cast<std::byte*>(&data[static_cast<size_t>(r)]);
         made.input = made.output;
         made.count = 1;
         return made;
       })) {
    ASSERT_TRUE(result.ok()) << result.to_string();
  }
  EXPECT_EQ(data, std::vector<int32_t>(hosts.size(), size));
}

TEST(Selection, DecidesHowManyMessagesThereAre) {
  std::vector<float> data(4, 1.0F);
  const auto sent_by = [&](std::string_view rules) {
    collective::SelectionTable table;
    if (!rules.empty()) table.rules = collective::parse_selection_rules(rules).value();
    World world({.size = 4, .board = false, .selection = table});
    const uint64_t before = world.engine(1).recorder().metrics().total("messages_sent");
    for (const Status& result : world.run_all([&](int32_t r) {
           auto* own = reinterpret_cast<std::byte*>(&data[static_cast<size_t>(r)]);
           OpRequest made{.kind = OpKind::kAllreduce, .dtype = DType::kF32};
           made.input = made.output = own;
           made.count = 1;
           return made;
         })) {
      EXPECT_TRUE(result.ok()) << result.to_string();
    }
    return world.engine(1).recorder().metrics().total("messages_sent") - before;
  };
  EXPECT_EQ(sent_by(""), 3U) << "one-shot";
  EXPECT_EQ(sent_by("allreduce=ring"), 6U);
  EXPECT_EQ(sent_by("allreduce=recursive_doubling"), 2U);
  EXPECT_EQ(sent_by("allreduce:1K-=ring"), 3U);
}

/// Each algorithm through the engine, wherever it can do the operation.
std::vector<Case> forced_cases() {
  std::vector<Case> all;
  for (const int32_t size : {4, 5}) {
    for (const uint64_t count : {0U, 5001U}) {
      for (const std::string_view rules :
           {"allreduce=one_shot", "allreduce=two_shot,reducescatter=two_shot",
            "allreduce=ring,reducescatter=ring,allgather=ring,broadcast=ring",
            "allreduce=recursive_doubling", "allreduce=rabenseifner",
            "broadcast=binomial,reduce=binomial,gather=binomial,scatter=binomial,barrier=binomial",
            "broadcast=direct,reduce=direct,gather=direct,scatter=direct,allgather=direct,"
            "alltoall=direct,barrier=direct",
            "allgather=bruck,alltoall=bruck"}) {
        all.push_back({size, false, count, Memory::kPrivate, rules});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Forced, Collectives, ::testing::ValuesIn(forced_cases()), name_of_case);

}  // namespace
}  // namespace corro::testing
