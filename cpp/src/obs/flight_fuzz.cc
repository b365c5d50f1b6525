// read_flight() with a sealed memfd that holds anything.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "obs/characters.h"
#include "obs/flight_layout.h"
#include "obs/metrics_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("corro-fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CORRO_CHECK(fd >= 0);
  CORRO_CHECK(::write(fd, data, size) == static_cast<ssize_t>(size));
  CORRO_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  const auto snapshot = corro::obs::read_flight(fd);
  close(fd);
  if (!snapshot.ok()) return 0;
  for (const corro::obs::OpSnapshot& op : snapshot->recent) {
    if (op.op.kind) (void)corro::name_of(*op.op.kind);
    (void)corro::name_of(op.op.dtype);
    (void)corro::obs::name_of(op.phase);
    CORRO_CHECK(op.name.size() < corro::obs::kFlightNameBytes);
    CORRO_CHECK(op.plan_lane.size() < corro::obs::kFlightLaneBytes);
  }
  CORRO_CHECK(snapshot->logged.size() <= corro::obs::kMostLogged);
  for (const corro::obs::LoggedValue& one : snapshot->logged) {
    CORRO_CHECK(!one.name.empty() && one.name.size() <= corro::obs::kLoggedNameBytes);
    CORRO_CHECK(corro::obs::is_shown(one.name));
  }
  CORRO_CHECK(!snapshot->progress || snapshot->progress->of > 0);
  for (const corro::obs::MetricInfo& metric : corro::obs::all_metrics())
    (void)corro::obs::total_of(snapshot->metrics, metric.name);
  CORRO_CHECK(snapshot->metrics.size() <= corro::obs::kMetricCount);
  return 0;
}
