// How each layer runs so that all of them fit in memory: of every layer type, how many layers take
// which option (recompute, sharding, offload), least time first (planning.md 3c).
//
//   const LayerChoices block{.count = 6, .options = {{3, 5}, {3.4, 3}, {4, 1}}};  // {time, memory}
//   const auto choice = choose_quickly({&block, 1}, 24);  // time 19.2, counts {{3, 3, 0}}
//   if (!choice) { /* needs least_memory({&block, 1}) */ }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace corro::plan {

/// Time and memory of one layer; any units, time >= 0 and memory >= 0, both finite.
struct LayerOption {
  double time;
  double memory;
};

/// `count` equal layers with at least one option.
struct LayerChoices {
  uint32_t count;
  std::vector<LayerOption> options;
};

struct MemoryChoice {
  std::vector<std::vector<uint32_t>> counts;  ///< By type and option: how many layers take it.
  double time = 0;
  double memory = 0;
  double bound = 0;    ///< No choice within the limit takes less time.
  bool exact = false;  ///< This one takes the least.
};

/// Options of layer types, put in order once for many counts and limits. choose_quickly() uses it.
/// Immutable.
class MemoryOptions {
 public:
  /// At least one option of each type.
  explicit MemoryOptions(std::vector<std::vector<LayerOption>> types);

  struct Choice {
    std::vector<uint32_t> counts;  ///< By type and option, one type after the other.
    double time = 0;
    double memory = 0;
  };
  /// As choose_quickly() chooses for so many layers of each type, into `choice`, whose memory is
  /// used again. False if nothing fits.
  bool choose(std::span<const uint32_t> layers, double limit, Choice& choice) const;
  /// The Lagrangian bound of the time within the limit, which is the linear program's optimum;
  /// infinity if nothing fits. O(options).
  [[nodiscard]] double bound(std::span<const uint32_t> layers, double limit) const;
  /// Where the type's options begin in Choice::counts.
  [[nodiscard]] size_t begin_of(size_t type) const { return types_[type].begin; }
  [[nodiscard]] const LayerOption& option(size_t place) const { return options_[place]; }

 private:
  struct Type {
    size_t begin;
    size_t end;
    std::vector<uint32_t>
        frontier;  ///< Options of which none is beaten in both; the smallest first.
  };
  /// One step up the convex part of a type's frontier: seconds saved for each unit of memory.
  struct Upgrade {
    double gain;
    size_t type;
    uint32_t from;
    uint32_t to;
  };
  /// The best two options of a type, and how many layers take the second.
  struct Pair {
    double time;
    uint32_t first = 0;
    uint32_t second = 0;
    uint32_t split = 0;
  };
  void total(Choice& choice) const;
  [[nodiscard]] Pair best_pair(const Type& type, uint32_t layers, double limit) const;
  void refine_pairs(std::span<const uint32_t> layers, double limit, Choice& choice) const;

  std::vector<LayerOption> options_;
  std::vector<Type> types_;
  std::vector<Upgrade>
      upgrades_;  ///< Of all types, the best gain first; along one hull in its order.
};

/// Memory of the smallest choice: what the limit has to be for an answer.
[[nodiscard]] double least_memory(std::span<const LayerChoices> types);

/// At most two options of a type, better ones while they fit: what the linear program chooses, with
/// whole layers. Above its bound by less than one layer's step from an option to the next. Nothing
/// if nothing fits. O(types options^2).
[[nodiscard]] std::optional<MemoryChoice> choose_quickly(std::span<const LayerChoices> types,
                                                         double limit);

}  // namespace corro::plan
