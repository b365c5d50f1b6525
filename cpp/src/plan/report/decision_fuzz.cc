// read_decision() with a file that holds anything: of what it accepts every report is made, and it
// is written and read again.
#include <string>
#include <string_view>

#include "base/check.h"
#include "plan/report/decision_file.h"
#include "plan/report/drawing.h"
#include "plan/report/megatron.h"
#include "plan/report/text_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const auto file = plan::read_decision({reinterpret_cast<const char*>(data), size}, "plan.json");
  if (!file.ok()) {
    CORRO_CHECK(file.status().message().starts_with("plan.json:"), file.status().message());
    CORRO_CHECK(file.status().message().find('\n') == std::string::npos, file.status().message());
    return 0;
  }
  const auto text = plan::decision_to_json(*file);
  CORRO_CHECK(text.ok(), text.status().message());
  const auto again = plan::read_decision(*text, "again");
  CORRO_CHECK(again.ok(), again.status().message());
  CORRO_CHECK(plan::decision_to_json(*again).value() == *text);
  CORRO_CHECK(plan::format_decision(*again, false) == plan::format_decision(*file, false));
  CORRO_CHECK(plan::explain_decision(*again) == plan::explain_decision(*file));
  CORRO_CHECK(!plan::compare_decisions(*file, "a", *again, "b").empty());
  CORRO_CHECK(!plan::decision_to_svg(*file).empty() && !plan::decision_to_html(*file).empty());
  CORRO_CHECK(!plan::export_megatron(*file).empty());
  return 0;
}
