// How the elements of a drawing look: plain attributes of SVG 1.1, by class.
#pragma once

#include <string>
#include <string_view>

namespace corro::plan {

inline constexpr std::string_view kFontAttributes =
    R"(font-family="system-ui, Helvetica, Arial, sans-serif" font-size="12")";

/// Attributes of an element with these classes, which blanks separate; each attribute comes behind
/// a blank, as in ` fill="..."`. "" for classes without a look of their own.
[[nodiscard]] std::string attributes_of(std::string_view classes);

/// Rules for dark screens, for the <style> of a page around drawings.
[[nodiscard]] std::string_view dark_style();

}  // namespace corro::plan
