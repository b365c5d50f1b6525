// read_instance() with a file that holds anything: small instances that it accepts are solved, and
// the split is written.
#include <cmath>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "plan/partition/partition.h"

namespace {

using corro::plan::MaxLoadInstance;
using corro::plan::PiperInstance;

/// Small enough for thousands of searches a second.
bool is_small(const MaxLoadInstance& instance) {
  return instance.nodes.size() <= 8 && instance.accelerators <= 8 && instance.processors <= 8;
}
bool is_small(const PiperInstance& instance) {
  return instance.nodes.size() <= 6 && instance.devices <= 16;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const auto instance =
      plan::read_instance({reinterpret_cast<const char*>(data), size}, "file.json");
  if (!instance.ok()) {
    const std::string& message = instance.status().message();
    CORRO_CHECK(message.starts_with("file.json: "), message);
    CORRO_CHECK(message.find('\n') == std::string::npos, message);
    return 0;
  }
  if (!std::visit([](const auto& problem) { return is_small(problem); }, instance->problem)) {
    return 0;
  }
  const auto result = plan::solve(*instance);
  if (!result.ok()) {
    CORRO_CHECK(result.status().code() == Code::kFailedPrecondition ||
                    result.status().code() == Code::kResourceExhausted,
                result.status().message());
    return 0;
  }
  CORRO_CHECK(std::isfinite(result->objective) && !result->stages.empty());
  CORRO_CHECK(plan::to_json(*result, 0).ends_with("}\n"));
  return 0;
}
