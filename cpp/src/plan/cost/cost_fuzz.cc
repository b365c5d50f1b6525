// read_calibration(), read_profile() and read_runs() with files that hold anything. An accepted
// calibration is written and read again, times are looked up in an accepted profile, and accepted
// runs are predicted.
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "plan/cost/calibration_file.h"
#include "plan/cost/profile_file.h"
#include "plan/cost/run_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto calibration = plan::read_calibration(text, "params.json");
  if (calibration.ok()) {
    const auto again = plan::read_calibration(plan::write_calibration(*calibration), "again");
    CORRO_CHECK(again.ok() && *again == *calibration);
  } else {
    CORRO_CHECK(calibration.status().message().starts_with("params.json"));
    CORRO_CHECK(calibration.status().message().find('\n') == std::string::npos);
  }
  const auto profile = plan::read_profile(text, "profile.json");
  if (profile.ok()) {
    for (const auto& [layer, times] : profile->layers) {
      const auto found = profile->find(layer, times.front().samples * 3);
      CORRO_CHECK(found && found->forward >= 0 && std::isfinite(found->backward));
    }
  } else {
    CORRO_CHECK(profile.status().message().starts_with("profile.json"));
    CORRO_CHECK(profile.status().message().find('\n') == std::string::npos);
  }
  const auto runs = plan::read_runs(text, "runs.csv");
  if (!runs.ok()) {
    CORRO_CHECK(runs.status().message().starts_with("runs.csv:"), runs.status().message());
    CORRO_CHECK(runs.status().message().find('\n') == std::string::npos, runs.status().message());
    return 0;
  }
  for (const plan::MeasuredRun& run : runs->runs) {
    if (run.pipeline > 64 || run.layers > 256) continue;  // as slow as they are large
    const auto predicted = plan::predict(run, plan::default_machine());
    CORRO_CHECK(!predicted.ok() || (std::isfinite(predicted->seconds) && predicted->seconds > 0));
  }
  return 0;
}
