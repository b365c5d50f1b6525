// parse_crash() and parse_stack() with any end of a worker's stderr or dump, read_error_message()
// with any error file.
#include <string_view>

#include "base/check.h"
#include "diagnosis/error_file.h"
#include "diagnosis/traceback.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const corro::diagnosis::Crash crash = corro::diagnosis::parse_crash(text);
  CORRO_CHECK(crash.error.size() <= size && crash.last_line.size() <= size);
  CORRO_CHECK(crash.details.size() <= corro::diagnosis::kMaxDetailsBytes + 4);
  CORRO_CHECK(corro::diagnosis::parse_stack(text).file.size() <= size);
  (void)corro::diagnosis::read_error_message(text);
  return 0;
}
