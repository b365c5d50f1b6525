// The reference of tests for a whole table: a map of naive rows, which go and come as the words of
// Retention say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "table/naive_row.h"
#include "table/types.h"

namespace corro::table {

/// Without a limit of bytes. The table's sketch is exact with few keys.
class NaiveTable {
 public:
  explicit NaiveTable(TableSpec spec) : spec_(std::move(spec)) {}

  void push(std::span<const uint64_t> keys, std::span<const float> gradients, uint64_t step) {
    drop_idle(step - 1);
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint64_t key = keys[i];
      if (!rows.contains(key)) {
        uint32_t& came = pushes_[key];
        if (came + 1 < spec_.retention.least_pushes) {
          ++came;
          continue;
        }
        rows[key] = {naive_initial(spec_, key), step};
      }
      auto& [row, touched] = rows[key];
      naive_update(spec_, row, gradients.subspan(i * spec_.dim, spec_.dim),
                   naive_rounding(spec_, key, step));
      touched = step;
    }
    drop_idle(step);
  }
  [[nodiscard]] std::vector<float> pull(uint64_t key) const {
    const auto found = rows.find(key);
    return found == rows.end() ? naive_initial(spec_, key).weights : found->second.first.weights;
  }

  std::unordered_map<uint64_t, std::pair<NaiveRow, uint64_t>> rows;

 private:
  void drop_idle(uint64_t done) {
    if (spec_.retention.idle_steps == 0) return;
    std::erase_if(rows, [this, done](const auto& item) {
      return done - item.second.second >= spec_.retention.idle_steps;
    });
  }

  TableSpec spec_;
  std::unordered_map<uint64_t, uint32_t> pushes_;
};

}  // namespace corro::table
