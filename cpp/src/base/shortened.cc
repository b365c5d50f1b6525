#include "base/shortened.h"

#include "base/check.h"

namespace corro {

std::string shortened(std::string_view text, size_t most) {
  constexpr std::string_view kMore = "...";
  CORRO_CHECK(most >= kMore.size(), most);
  if (text.size() <= most) return std::string(text);
  std::string cut(text.substr(0, most - kMore.size()));
  cut += kMore;
  return cut;
}

}  // namespace corro
