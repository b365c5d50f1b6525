// Files that may be no history: whatever is read has times in order, any of them is a job that can be
// written down, and what a writer makes of it is read as the same. The first byte says which time.
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "dashboard/board_text.h"
#include "dashboard/history.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  if (size == 0) return 0;
  const auto history =
      dashboard::History::read(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (!history.ok()) return 0;
  CORRO_CHECK(history->begin() <= history->end());
  const UnixTime time = history->begin() + (history->end() - history->begin()) / 255 * data[0];
  const dashboard::JobPicture then = history->at(time).picture();
  CORRO_CHECK(nlohmann::json::accept(dashboard::write_job(history->at(time), time)));
  dashboard::HistoryWriter writer;
  const std::string text = writer.begin(then) + writer.end(then, time);
  const auto again = dashboard::History::read(text);
  CORRO_CHECK(again.ok() && again->note().empty(), text);
  CORRO_CHECK(again->at(again->end()).picture().ranks.size() == then.ranks.size(), text);
  return 0;
}
