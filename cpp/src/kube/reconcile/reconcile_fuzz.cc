// Reads a job, its pods and its other objects from JSON of any shape, and decides twice.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kube/reconcile/reconcile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using corro::kube::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Json input = Json::parse(text, nullptr, false);
  if (!input.is_object()) return 0;
  const Json job = input.value("job", Json());
  const Json pods = input.value("pods", Json());
  const Json objects = input.value("objects", Json());
  corro::kube::Options options;
  options.served = {"v1alpha2", true, true};
  corro::kube::Observed observed;
  observed.job = &job;
  observed.options = &options;
  for (const Json& pod : pods) observed.pods.push_back(&pod);
  for (const Json& object : objects) observed.objects.push_back(&object);
  const auto read = corro::kube::read_job(job, {});
  const corro::kube::KubeTime now{std::chrono::seconds(1'800'000'000)};
  (void)reconcile(read, observed, now);
  observed.expected.status_written = now;
  (void)reconcile(read, observed, now + std::chrono::hours(1));
  return 0;
}
