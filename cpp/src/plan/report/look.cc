#include "plan/report/look.h"

#include <algorithm>
#include <array>

namespace corro::plan {
namespace {

struct Look {
  std::string_view css;
  std::string_view attributes;
};

constexpr auto kLooks = std::to_array<Look>({
    {"paper", R"(fill="#ffffff")"},
    {"t", R"(fill="#1d2430" font-size="12")"},
    {"h", R"(fill="#1d2430" font-size="16" font-weight="600")"},
    {"note", R"(fill="#657080" font-size="12")"},
    {"in", R"(fill="#ffffff" font-size="11" pointer-events="none")"},
    {"axis", R"(stroke="#c4ccd6")"},
    {"idle", R"(fill="#eef1f5")"},
    // Work of a stage.
    {"forward", R"(fill="#3b76c4")"},
    {"backward", R"(fill="#2c8c5a")"},
    {"weight_gradients", R"(fill="#8a9a2e")"},
    {"sync", R"(fill="#c07a1c")"},
    {"update", R"(fill="#8459b8")"},
    {"c1", R"(fill-opacity="0.9")"},
    {"c2", R"(fill-opacity="0.8")"},
    {"c3", R"(fill-opacity="0.72")"},
    // Terms of memory.
    {"weights", R"(fill="#3b76c4")"},
    {"gradients", R"(fill="#4fa3a5")"},
    {"optimizer", R"(fill="#8459b8")"},
    {"activations", R"(fill="#c07a1c")"},
    {"transient", R"(fill="#b8515f")"},
    {"limit", R"(stroke="#d03040" stroke-width="2" stroke-dasharray="5 3")"},
    // Hosts.
    {"host", R"(fill="none" stroke="#c4ccd6" rx="4")"},
    {"device", R"(rx="2")"},
    {"unused", R"(fill="#eef1f5")"},
});

}  // namespace

std::string attributes_of(std::string_view classes) {
  std::string attributes;
  while (!classes.empty()) {
    const size_t blank = std::min(classes.find(' '), classes.size());
    const auto* look = std::ranges::find(kLooks, classes.substr(0, blank), &Look::css);
    if (look != kLooks.end()) attributes.append(" ").append(look->attributes);
    classes.remove_prefix(std::min(blank + 1, classes.size()));
  }
  return attributes;
}

std::string_view dark_style() {
  return R"(@media (prefers-color-scheme: dark) {
  .t, .h { fill: #e4e9f0; }
  .note { fill: #9aa6b5; }
  .axis, .host { stroke: #3c4654; }
  .idle, .unused { fill: #232a34; } }
)";
}

}  // namespace corro::plan
