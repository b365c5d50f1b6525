// parse_crash(), parse_stack() and format_stacks() with any end of a worker's stderr or dump,
// read_error_message() with any error file.
#include <string_view>

#include "base/check.h"
#include "diagnosis/error_file.h"
#include "diagnosis/stacks.h"
#include "diagnosis/traceback.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const corro::diagnosis::Crash crash = corro::diagnosis::parse_crash(text);
  CORRO_CHECK(crash.error.size() <= size && crash.last_line.size() <= size);
  CORRO_CHECK(crash.details.size() <= corro::diagnosis::kMaxDetailsBytes + 4);
  CORRO_CHECK(corro::diagnosis::parse_stack(text).file.size() <= size);
  const corro::diagnosis::RankStacks rank{
      .rank = 0, .host = "", .text = std::string(text), .missing = "?"};
  (void)corro::diagnosis::format_stacks(std::span(&rank, 1));
  (void)corro::diagnosis::read_error_message(text);
  return 0;
}
