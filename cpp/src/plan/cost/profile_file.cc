#include "plan/cost/profile_file.h"

#include <fmt/format.h>

#include <utility>

#include "plan/json.h"

namespace corro::plan {
namespace {

constexpr RealRange kSamplesRange{1e-6, 1e9};
constexpr RealRange kTimeRange{1e-12, 1e6};

std::vector<LayerTime> read_times(const Json& json, const Place& place, Reading& reading) {
  std::vector<LayerTime> times;
  if (!json.is_array() || json.empty()) {
    reading.fail(place, "must be a list of at least one measured time");
    return times;
  }
  for (size_t i = 0; i < json.size() && reading.ok(); ++i) {
    const Place at{&place, {}, i};
    ObjectReader item(json[i], at, reading, {"samples", "forward", "backward"});
    LayerTime time{.samples = item.real("samples", kSamplesRange),
                   .forward = item.real("forward", kTimeRange),
                   .backward = item.real("backward", kTimeRange)};
    if (reading.ok() && !times.empty() && time.samples <= times.back().samples) {
      reading.fail({&at, "samples", {}}, "must be more than those before");
    }
    times.push_back(time);
  }
  return times;
}

}  // namespace

Result<Profile> read_profile(std::string_view text, std::string_view name) {
  if (text.size() > kMostProfileBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is longer than {} bytes", name, kMostProfileBytes));
  }
  CORRO_ASSIGN(const Json document, parse_json(text, name));
  Reading reading(name, text);
  check_version(document, "corro_profile", kProfileVersion, reading);
  CORRO_TRY(reading.status());
  ObjectReader top(document, {}, reading, {"corro_profile", "device", "dtype", "update", "layers"});
  Profile profile;
  profile.device = top.text("device");
  profile.dtype = top.choice<DType>("dtype", kDTypeCount);
  profile.update = top.real("update", kTimeRange);
  top.fields("layers", [&](const std::string& layer, const Json& times, const Place& place) {
    profile.layers.emplace(layer, read_times(times, place, reading));
  });
  if (reading.ok() && profile.layers.empty()) {
    reading.fail({nullptr, "layers", {}}, "must have the times of at least one layer");
  }
  CORRO_TRY(reading.status());
  return profile;
}

}  // namespace corro::plan
