// Which steps of one rank's schedule may run, as the rounds and the window of strands allow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collective/schedule/schedule.h"

namespace corro::collective {

/// Externally synchronized. Borrows the schedule.
class SimulatedStrands {
 public:
  explicit SimulatedStrands(const Schedule& schedule)
      : schedule_(schedule), strands_(schedule.strands) {
    size_t next = 0;
    for (uint32_t s = 0; s < schedule.strands; ++s) {
      strands_[s].next = next;
      while (next < schedule.steps.size() && schedule.steps[next].strand == s) ++next;
      strands_[s].end = next;
    }
    open_strands();
  }

  [[nodiscard]] bool done() const { return first_unfinished_ == strands_.size(); }
  [[nodiscard]] const Step& step(size_t i) const { return schedule_.steps[i]; }
  /// Steps that have become runnable; the caller takes them out.
  std::vector<size_t>& open() { return open_; }

  /// A step is done; opens the next round, or strands, if it was the last one.
  void complete(size_t i) {
    Strand& strand = strands_[step(i).strand];
    if (--strand.running > 0) return;
    open_round(strand);
    open_strands();
  }

 private:
  struct Strand {
    size_t next = 0, end = 0;
    size_t running = 0;
    [[nodiscard]] bool finished() const { return running == 0 && next == end; }
  };

  void open_strands() {
    for (;;) {
      while (first_unfinished_ < opened_ && strands_[first_unfinished_].finished()) {
        ++first_unfinished_;
      }
      const size_t window = std::max(schedule_.strand_window, 1U);
      if (opened_ == strands_.size() || opened_ == first_unfinished_ + window) return;
      open_round(strands_[opened_++]);
    }
  }

  void open_round(Strand& strand) {
    if (strand.next == strand.end) return;
    const uint32_t round = step(strand.next).round;
    for (; strand.next < strand.end && step(strand.next).round == round; ++strand.next) {
      open_.push_back(strand.next);
      ++strand.running;
    }
  }

  const Schedule& schedule_;
  std::vector<Strand> strands_;
  std::vector<size_t> open_;
  size_t opened_ = 0;
  size_t first_unfinished_ = 0;
};

}  // namespace corro::collective
