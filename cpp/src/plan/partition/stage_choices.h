// Chooses how each layer of a stage runs, so that the stage fits into memory and is as fast as
// possible: a knapsack, solved exactly.
//
//   StageChoices choices(memory_bytes);
//   choices.clear();
//   for (...) choices.add_node(ways);              // One list for each layer.
//   if (choices.find(micro_batches_in_flight)) use(choices.time(), choices.picks());
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace corro::plan {

/// One way to run a layer within a stage whose degrees are known.
struct LayerWay {
  double time = 0;
  double memory_in_flight = 0;  ///< Bytes for each micro-batch in flight.
  double memory_fixed = 0;      ///< Bytes.
};

/// Loop-confined; keeps its memory from one stage to the next.
class StageChoices {
 public:
  explicit StageChoices(double memory_bytes) : memory_(memory_bytes) {}

  void clear();
  /// `ways` is not empty.
  void add_node(std::span<const LayerWay> ways);

  /// Finds the fastest ways that fit with `in_flight` micro-batches. False if none fit, or if
  /// gave_up().
  bool find(uint64_t in_flight);

  /// Of the last find() that succeeded:
  [[nodiscard]] double time() const { return sum_.time; }
  [[nodiscard]] double memory(uint64_t in_flight) const { return memory_of(sum_, in_flight); }
  /// The most micro-batches in flight with which these ways fit, up to `most`.
  [[nodiscard]] uint64_t fits_up_to(uint64_t most) const;
  [[nodiscard]] const std::vector<uint32_t>& picks() const { return picks_; }

  /// True if some find() had to try too much: the answers are no longer exact.
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  [[nodiscard]] uint64_t tries() const { return tries_; }

 private:
  /// Slower ways of one layer, or of several layers that save the same and so are taken in the
  /// order of their cost.
  struct Saving {
    double saved = 0;
    double cost = 0;
    uint32_t node = 0;
    uint32_t way = 0;
  };
  struct Group {
    size_t begin = 0;  ///< In savings_: ascending in `saved` and in `cost`.
    size_t end = 0;
    bool of_many = false;  ///< The saving number i takes the layers of all savings before it too.
    double least_ratio = 0;
    double most_saved = 0;  ///< Of this group and all after it.
  };

  [[nodiscard]] double memory_of(const LayerWay& way, uint64_t in_flight) const {
    return way.memory_in_flight * static_cast<double>(in_flight) + way.memory_fixed;
  }
  [[nodiscard]] std::span<const LayerWay> ways_of(size_t node) const {
    return {ways_.data() + begin_[node], ways_.data() + begin_[node + 1]};
  }
  void find_savings(uint64_t in_flight);
  void group_layers_alike();
  void add_layer_with_several(std::vector<Saving>& layer);
  void close_group(size_t begin, bool of_many);
  void search(size_t group, double need, double cost);
  void take_picks();

  double memory_;
  std::vector<LayerWay> ways_;
  std::vector<size_t> begin_{0};
  std::vector<uint32_t> fastest_;
  std::vector<uint32_t> picks_;
  LayerWay sum_;
  std::vector<Saving> single_;
  std::vector<Saving> savings_;
  std::vector<Group> groups_;
  std::vector<size_t> taken_;  ///< How many savings of each group; 0: none.
  std::vector<size_t> best_taken_;
  double best_cost_ = std::numeric_limits<double>::infinity();
  uint64_t budget_ = 0;
  uint64_t tries_ = 0;
  bool gave_up_ = false;
};

}  // namespace corro::plan
