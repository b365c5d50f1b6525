// The dynamic program under the sweep of stages.h: the least sum over the stages when none may take
// longer than a limit. Internal.
//
// It runs from the last stage to the first, for a stage's cost depends on how many follow it:
//
//   f(s, k, D) = least sum of s stages that hold the layers from k on, on D units
//              = min over a mesh x and a layer j > k:  f(s-1, j, D-x) + cost(layers k..j, x, s)
//
// Three things keep it small. rest(k, D), the least sum of the layers before k on D units if every
// stage cost as little as the last but one, bounds what is still to come: a state whose sum and
// rest reach the best known plan is dropped. A state with no fewer stages, no fewer units and no
// less of a sum than another one at the same k is dropped, since costs never fall away from the end
// (unless the number of stages is given). And a row of states, one k and s and all D, is one loop
// over doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "plan/solve/stages.h"

namespace corro::plan {

/// Costs of ranges, asked once for all ranges of equal layers. Loop-confined.
class StageCosts {
 public:
  explicit StageCosts(const StageProblem& problem);

  [[nodiscard]] uint32_t layers() const { return layers_; }
  [[nodiscard]] size_t asked() const { return asked_; }
  const StageCost& of(uint32_t begin, uint32_t end, uint32_t mesh, uint32_t from_end);

 private:
  void number_ranges();
  /// To what it costs as the last but one, which rests and dominance go by.
  void raise(size_t place, size_t cell);

  const StageProblem& problem_;
  uint32_t layers_ = 0;
  std::vector<uint32_t> class_of_;  ///< By begin and end.
  uint32_t classes_ = 0;
  std::vector<std::vector<StageCost>> memo_;  ///< By from_end, then class and mesh; time < 0: new.
  size_t asked_ = 0;
};

/// Borrows the problem, which is checked. Loop-confined.
class StageProgram {
 public:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  struct Plan {
    double sum;
    double slowest;
    std::vector<StagePlan::Stage> stages;
  };

  /// Cells of a row, by units.
  struct Cells {
    size_t begin = 0;
    size_t end = 0;
  };

  explicit StageProgram(const StageProblem& problem);

  /// No plan's longest stage is shorter; kNone if there is no plan at all.
  [[nodiscard]] double shortest_limit();
  /// The plan of the least sum whose stages take no longer than the limit, if the sum is below cut.
  [[nodiscard]] std::optional<Plan> least_sum(double limit, double cut);

  [[nodiscard]] size_t costs_asked() const { return costs_.asked(); }

 private:
  using Row = std::vector<double>;  ///< By units, in mixed radix over the types; kNone: no state.
  /// Units of a row that go over into others when a mesh is added to them.
  struct Shift {
    size_t distance;  ///< In the row.
    size_t block;     ///< Cells after which the type's units start anew.
    size_t length;    ///< Cells of a block to which the mesh can be added.
  };

  /// By layer: more units than this are not left to the layers before it, since those from it on
  /// need the others if no stage takes longer than the limit. Of one device type; 0: too few.
  std::vector<size_t> spared(double limit);
  /// False if there is no plan within the limit, as far as can be seen at once.
  bool fill_rest(double limit);
  void begin_rows(double limit);
  bool prune(uint32_t stages, uint32_t layer, double cut);
  void expand(uint32_t stages, uint32_t layer, double limit);
  /// Adds a mesh to these cells of a row.
  void add(const Row& from, Cells cells, double cost, const Shift& shift, Row& to) const;
  Plan trace(uint32_t stages, size_t units, double limit);
  double weighted(const StageCost& cost, uint32_t from_end) const;

  const StageProblem& problem_;
  StageCosts costs_;
  size_t cells_ = 1;
  uint32_t most_stages_;
  std::vector<Shift> shifts_;           ///< By mesh; length 0: more units than there are.
  std::vector<Row> rest_;               ///< By layer: the layers before it, by units at hand.
  std::vector<Row> fewest_;             ///< By layer: the least sum with fewer stages.
  std::vector<std::vector<Row>> rows_;  ///< By stages - 1 and first layer; empty: no state.
};

}  // namespace corro::plan
