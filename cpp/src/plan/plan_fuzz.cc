// read_plan() with a file that holds anything: what it accepts is written, read again, expanded and
// cut.
#include <string_view>

#include "base/check.h"
#include "graph/cut.h"
#include "plan/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const auto plan = plan::read_plan({reinterpret_cast<const char*>(data), size}, "plan.json");
  if (!plan.ok()) {
    CORRO_CHECK(plan.status().message().starts_with("plan.json: "), plan.status().message());
    CORRO_CHECK(plan.status().message().find('\n') == std::string::npos, plan.status().message());
    return 0;
  }
  const auto text = plan::write_plan(*plan);
  CORRO_CHECK(text.ok(), text.status().message());
  const auto again = plan::read_plan(*text, "again");
  CORRO_CHECK(again.ok() && graph::hash_of(*again) == graph::hash_of(*plan));
  const Status status = graph::check(*plan);
  CORRO_CHECK(status.ok() || status.code() == Code::kFailedPrecondition, status.message());
  CORRO_CHECK(graph::check_form(graph::expand(*plan)).ok());
  for (uint32_t rank = 0; rank < plan->ranks && rank < 8; ++rank) {
    CORRO_CHECK(graph::check_form(graph::cut(*plan, rank).plan).ok());
  }
  return 0;
}
