// Whole groups as tests of schedules make and check them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "testing/simulation/simulate.h"

namespace corro::collective {

/// One operation of a whole group; owns the counts that the problems refer to.
struct Group {
  std::vector<Problem> problems;
  std::vector<std::vector<uint64_t>> counts;       ///< Per rank (alltoall), or one for all.
  std::vector<std::vector<uint64_t>> send_counts;  ///< Per rank (alltoall).

  [[nodiscard]] std::string describe() const {
    const Problem& p = problems.front();
    return std::string(name_of(p.kind)) + " size=" + std::to_string(p.size) +
           " root=" + std::to_string(p.root) + " count=" + std::to_string(p.count) +
           " chunk=" + std::to_string(p.chunk_count) + (p.counts.empty() ? "" : " uneven") +
           " aggregators=" + std::to_string(p.aggregators);
  }
};

inline Group even_group(Problem problem) {
  Group group;
  for (int32_t rank = 0; rank < problem.size; ++rank) {
    problem.rank = rank;
    group.problems.push_back(problem);
  }
  return group;
}

/// Counts of 0 .. largest, the same on every rank but for alltoall, where each pair has its own.
inline Group uneven_group(const Problem& problem, uint64_t largest, std::mt19937_64& random) {
  Group group = even_group(problem);
  const auto size = static_cast<size_t>(problem.size);
  const auto draw = [&] { return random() % 4 == 0 ? 0 : random() % (largest + 1); };
  if (problem.kind != OpKind::kAlltoall) {
    group.counts.emplace_back();
    for (size_t r = 0; r < size; ++r) group.counts[0].push_back(draw());
    for (Problem& p : group.problems) {
      p.counts = group.counts[0];
      p.count = p.counts[static_cast<size_t>(p.rank)];
    }
    return group;
  }
  group.counts.assign(size, std::vector<uint64_t>(size));
  group.send_counts = group.counts;
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      group.send_counts[from][to] = group.counts[to][from] = draw();
    }
  }
  for (size_t r = 0; r < size; ++r) {
    group.problems[r].counts = group.counts[r];
    group.problems[r].send_counts = group.send_counts[r];
  }
  return group;
}

inline bool has_counts(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kReducescatter ||
         kind == OpKind::kAlltoall || kind == OpKind::kGather || kind == OpKind::kScatter;
}

/// Each rank decides for itself whether it works in place.
inline void choose_in_place(Group& group, std::mt19937_64& random) {
  const uint64_t mode = random() % 3;  // nobody, everybody, some
  for (Problem& p : group.problems) p.in_place = mode == 1 || (mode == 2 && random() % 2 == 0);
}

/// What the generator is told: the truth, or (on some ranks) something else where that has to be
/// right as well.
inline std::vector<Problem> as_told(const Group& group, std::mt19937_64& random) {
  std::vector<Problem> told = group.problems;
  for (Problem& p : told) {
    const bool matters = p.kind == OpKind::kAlltoall || p.kind == OpKind::kReducescatter;
    if (random() % 4 == 0) p.in_place = matters || !p.in_place;
  }
  return told;
}

/// Checks everything about one operation. Memory is checked on every rank of a small group, on a
/// few of a large one.
inline void expect_right(const Group& group, Algorithm algorithm, std::mt19937_64& random,
                         int orders) {
  SCOPED_TRACE(std::string(name_of(algorithm)) + " " + group.describe());
  const std::vector<Schedule> schedules = generate_all(as_told(group, random), algorithm);
  const Status messages = check_messages(schedules);
  ASSERT_TRUE(messages.ok()) << messages.to_string();
  const size_t stride = group.problems.size() < 20 ? 1 : 1 + group.problems.size() / 3;
  for (size_t r = random() % stride; r < group.problems.size(); r += stride) {
    const Status memory = check_memory(group.problems[r], schedules[r]);
    ASSERT_TRUE(memory.ok()) << memory.to_string();
    ASSERT_EQ(schedules[r].order, schedules[0].order);
    ASSERT_EQ(schedules[r].stage_count, schedules[0].stage_count);
  }
  for (int i = 0; i < orders; ++i) {
    const SimulationOptions options{random(), static_cast<uint32_t>(random() % 3)};
    const Status result = simulate(group.problems, schedules, options);
    ASSERT_TRUE(result.ok()) << result.to_string() << " seed=" << options.seed
                             << " buffers=" << options.buffered_messages;
  }
}

inline Problem random_problem(OpKind kind, int32_t size, uint64_t largest_count,
                              std::mt19937_64& random) {
  Problem problem{.kind = kind, .size = size};
  problem.root = static_cast<int32_t>(random() % static_cast<uint64_t>(size));
  problem.count = kind == OpKind::kBarrier ? 0 : random() % (largest_count + 1);
  if (random() % 2 == 0) problem.chunk_count = 1 + random() % (problem.count / 4 + 1);
  return problem;
}

}  // namespace corro::collective
