// Pictures of a decision as SVG: timeline, memory, placement.
#pragma once

#include <string>
#include <vector>

#include "plan/report/decision_file.h"

namespace corro::plan {

inline constexpr double kDrawingWidth = 960;

/// One picture, without the <svg> around it.
struct Drawing {
  std::string title = {};
  std::string note = {};  ///< A sentence below; may be empty.
  double height = 0;
  std::string body = {};  ///< Elements, which look the same without a style (look.h).
};

[[nodiscard]] Drawing draw_timeline(const DecisionFile& file);
[[nodiscard]] Drawing draw_memory(const DecisionFile& file);
[[nodiscard]] Drawing draw_placement(const DecisionFile& file);
[[nodiscard]] std::vector<Drawing> drawings_of(const DecisionFile& file);

/// A file with all drawings, one below the other. Well-formed XML; every name is escaped.
[[nodiscard]] std::string decision_to_svg(const DecisionFile& file);
/// One page with the table, the drawings and the explanation; needs nothing from elsewhere.
[[nodiscard]] std::string decision_to_html(const DecisionFile& file);

}  // namespace corro::plan
