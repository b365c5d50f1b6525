// What is known of each line that was printed: who printed it how often, and what of that is on the
// screen. A line is known by its hash alone.
//
// Every line of every rank is looked up here, and most that differ are seen once, so a lookup must
// not wait for memory. Lines have numbers, which are given in turn, so that new and old ones lie
// side by side; beside them there is a table from hash to number with open addressing, which holds
// half of the hash: a line that is new is known to be so without looking at any other line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace corro::screen {

struct SeenLine {
  struct Count {
    int rank = 0;
    uint32_t printed = 0;
  };
  uint64_t key = 0;
  uint32_t shown = 0;         ///< Copies on the screen.
  bool waiting = false;       ///< It is not forgotten.
  bool listed = false;        ///< Among those that may be forgotten.
  Count first = {};           ///< Of the rank that has printed it first.
  std::vector<Count> others;  ///< Of other ranks, ascending; most lines that differ have none.

  /// `visit` gets the count of each rank that has printed it.
  template <typename Visit>
  void for_each_count(const Visit& visit) const {
    visit(first);
    for (const Count& count : others) visit(count);
  }
};

/// Loop-confined.
class SeenLines {
 public:
  /// `max_bytes` of memory, about; more only for lines that wait.
  explicit SeenLines(size_t max_bytes) : max_bytes_(max_bytes), table_(kLeastPlaces) {}

  /// Returns the line's number, which stays the same until it is forgotten. A new line takes the
  /// place of the oldest ones that do not wait.
  uint32_t find_or_add(uint64_t key);
  [[nodiscard]] SeenLine& operator[](uint32_t number) { return lines_[number]; }
  [[nodiscard]] const SeenLine& operator[](uint32_t number) const { return lines_[number]; }
  /// Counts one more copy; returns how many the rank has printed.
  uint32_t count(uint32_t number, int rank);
  /// It waits no more. From now on it may be forgotten, once all older ones are.
  void release(uint32_t number);
  [[nodiscard]] size_t size() const { return lines_.size() - free_.size(); }

 private:
  static constexpr size_t kLeastPlaces = 1024;
  /// Of the table. Number 0 is the first line's, so it is stored with one added; 0: free.
  struct Place {
    uint32_t hash = 0;
    uint32_t number = 0;
  };

  [[nodiscard]] size_t next(size_t place) const { return (place + 1) & (table_.size() - 1); }
  [[nodiscard]] size_t home_of(uint32_t hash) const { return hash & (table_.size() - 1); }
  [[nodiscard]] size_t find(uint64_t key) const;
  uint32_t add(uint64_t key);
  void grow();
  void free_place(size_t place);
  void list(uint32_t number);
  void forget_oldest();

  size_t max_bytes_;
  size_t bytes_ = 0;
  std::vector<Place> table_;  ///< As long as a power of two, and at most three quarters full.
  std::vector<SeenLine> lines_;
  std::deque<uint32_t> free_;   ///< Numbers without a line, in the order in which they became so.
  std::deque<uint32_t> order_;  ///< Numbers of lines that may be forgotten, oldest first.
};

}  // namespace corro::screen
