// Queries of any bytes: what was decoded is never longer than what was sent, and what has no sign of
// its own stays as it is.
#include <string_view>

#include "base/check.h"
#include "http/query.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const http::Query query = http::parse_query(text);
  size_t bytes = 0;
  for (const auto& [name, value] : query) bytes += name.size() + value.size();
  CORRO_CHECK(bytes <= size, bytes, size);
  const bool is_plain = size > 0 && text.find_first_of("%+&=") == std::string_view::npos;
  CORRO_CHECK(!is_plain || (query.size() == 1 && query.begin()->first == text), text);
  return 0;
}
