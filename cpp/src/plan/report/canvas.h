// Canvas: elements of an SVG, one a line, escaped. Colours and sizes are attributes of each element
// (look.h), which editors, slides and converters know as well as browsers; a class is there for a
// page's rules for dark screens, which win over attributes.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plan/report/look.h"
#include "plan/report/table.h"

namespace corro::plan {

class Canvas {
 public:
  struct Box {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
  };

  /// `title`: what a browser shows where the pointer rests.
  void box(const Box& box, std::string_view css, std::string_view title = {},
           std::string_view fill = {}) {
    text_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"{}",
        css, finite(box.x), finite(box.y), finite(box.width), finite(box.height),
        attributes_of(css));
    if (!fill.empty()) text_ += fmt::format(" fill=\"{}\"", fill);
    text_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view css) {
    text_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"{}/>\n", css,
        finite(x1), finite(y1), finite(x2), finite(y2), attributes_of(css));
  }
  /// `anchor`: start, middle or end.
  void text(double x, double y, std::string_view words, std::string_view css = "t",
            std::string_view anchor = "start") {
    text_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n",
                    css, finite(x), finite(y), anchor, attributes_of(css), escaped(words));
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  static double finite(double value) { return std::isfinite(value) ? value : 0; }

  std::string text_;
};

}  // namespace corro::plan
