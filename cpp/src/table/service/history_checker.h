// HistoryChecker, for tests: whether what a rank has pulled is what its table's mode allows, of
// batches that all ranks push one after the other.
//
//   HistoryChecker checker(spec, pushes);   // pushes[step - 1][rank]
//   checker.explain({.rank = 1, .pushed = 3, .answered = 2, .ids = ids, .rows = rows});
//
//   sync      each row has all steps up to the rank's last push, and has the bits of one process
//   bounded   each row has the bits of one process after some step that the staleness allows
//   async     each row has of each rank its first pushes, each once: of the rank's own all that were
//             answered. In a table of sums: rows begin as 0, and a push subtracts whole numbers
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "table/service/served_table.h"
#include "table/service/split.h"

namespace corro::table {

/// What a rank pushes in a step of a table of dim 1.
struct Batch {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};

/// Copyable; immutable.
class HistoryChecker {
 public:
  /// Of keys 0 to `keys` - 1.
  HistoryChecker(const TableSpec& spec, const std::vector<std::vector<Batch>>& pushes,
                 uint64_t keys)
      : spec_(spec), steps_(pushes.size()) {
    const size_t ranks = pushes.empty() ? 0 : pushes[0].size();
    if (spec.mode == Mode::kAsync) {
      for (size_t rank = 0; rank < ranks; ++rank) sums_.push_back(sums_of(pushes, rank, keys));
    } else {
      run(pushes, keys);
    }
  }

  struct Pulled {
    size_t rank = 0;
    uint64_t pushed = 0;    ///< By this rank, before the pull.
    uint64_t answered = 0;  ///< Of these, before the rows were asked for first.
    std::span<const uint64_t> ids;
    std::span<const float> rows;
  };
  /// What is wrong with it; empty: nothing.
  [[nodiscard]] std::string explain(const Pulled& pulled) const {
    for (size_t i = 0; i < pulled.ids.size(); ++i) {
      if (allows(pulled, pulled.ids[i], pulled.rows[i])) continue;
      return fmt::format("rank {}: after {} pushes, {} of them answered, key {} is {}", pulled.rank,
                         pulled.pushed, pulled.answered, pulled.ids[i], pulled.rows[i]);
    }
    return {};
  }
  /// What each key has after so many steps; not in async mode.
  [[nodiscard]] const std::vector<float>& after(uint64_t step) const { return after_.at(step); }
  /// What each key has once all pushes have been taken.
  [[nodiscard]] float last(uint64_t key) const {
    if (spec_.mode != Mode::kAsync) return after_.back()[key];
    float sum = 0;
    for (const auto& of_rank : sums_) sum += of_rank.back()[key];
    return sum;
  }

 private:
  using Rows = std::vector<float>;  ///< By key.

  [[nodiscard]] bool allows(const Pulled& pulled, uint64_t key, float row) const {
    if (spec_.mode == Mode::kAsync) return allows_sum(pulled, key, row);
    const uint64_t first = pulled.pushed - std::min<uint64_t>(pulled.pushed, spec_.staleness);
    for (uint64_t step = first; step <= pulled.pushed; ++step)
      if (after_[step][key] == row) return true;
    return false;
  }

  [[nodiscard]] bool allows_sum(const Pulled& pulled, uint64_t key, float row) const {
    std::set<float> possible = {0};
    for (size_t rank = 0; rank < sums_.size(); ++rank) {
      const bool own = rank == pulled.rank;
      std::set<float> next;
      for (uint64_t count = own ? pulled.answered : 0; count <= (own ? pulled.pushed : steps_);
           ++count)
        for (const float sum : possible) next.insert(sum + sums_[rank][count][key]);
      possible = std::move(next);
    }
    return possible.contains(row);
  }

  /// What a rank's first pushes do to each key, by their number.
  static std::vector<Rows> sums_of(const std::vector<std::vector<Batch>>& pushes, size_t rank,
                                   uint64_t keys) {
    std::vector<Rows> sums = {Rows(keys)};
    for (const auto& step : pushes) {
      Rows next = sums.back();
      for (size_t i = 0; i < step[rank].ids.size(); ++i)
        next[step[rank].ids[i]] -= step[rank].gradients[i];
      sums.push_back(std::move(next));
    }
    return sums;
  }

  /// In one process: the gradients of a rank are added up first, then those of the ranks.
  void run(const std::vector<std::vector<Batch>>& pushes, uint64_t keys) {
    TableSpec alone = spec_;
    alone.mode = Mode::kSync;
    alone.staleness = 0;
    const auto table = ServedTable::create({.spec = alone}).value();
    std::vector<uint64_t> all(keys);
    for (uint64_t key = 0; key < keys; ++key) all[key] = key;
    const auto keep = [&] { CORRO_CHECK(table->pull(all, after_.emplace_back(keys)).ok()); };
    keep();
    for (const auto& step : pushes) {
      std::map<uint64_t, float> total;
      for (const Batch& batch : step) {
        const DistinctKeys mine = distinct(batch.ids);
        const std::vector<float> added = add_up(mine, batch.gradients, 1);
        for (size_t i = 0; i < added.size(); ++i) {
          const auto [at, is_new] = total.try_emplace(mine.keys[i], added[i]);
          if (!is_new) at->second += added[i];
        }
      }
      std::vector<uint64_t> pushed;
      std::vector<float> gradients;
      for (const auto& [key, sum] : total) {
        pushed.push_back(key);
        gradients.push_back(sum);
      }
      const PushHead head{
          .step = table->steps() + 1, .rows = pushed.size(), .lr = spec_.optimizer.lr};
      CORRO_CHECK(table->take(0, {head, pushed, gradients}).ok());
      CORRO_CHECK(table->apply().ok());
      keep();
    }
  }

  const TableSpec spec_;
  const uint64_t steps_;
  std::vector<Rows> after_;              ///< By step, from 0.
  std::vector<std::vector<Rows>> sums_;  ///< By rank and number of its pushes.
};

}  // namespace corro::table
