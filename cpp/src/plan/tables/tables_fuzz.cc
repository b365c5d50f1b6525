// read_tables() with a file that holds anything; what it accepts is decided for two clusters.
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "plan/cluster/cluster_file.h"
#include "plan/tables/tables_decision.h"

namespace {

using namespace corro;

constexpr const char* kHome =
    "corro_cluster: 1\nhosts: [{device: t4, count: 2, network: {bandwidth: 1e9}}]\n";
constexpr const char* kAlone =
    "corro_cluster: 1\nhosts: [{device: cpu-core, devices: 2, link: {bandwidth: 1e10}, "
    "host_memory: 1e9}]\n";

void decide(const plan::Tables& tables, const char* text) {
  const auto decision = plan::decide_tables(tables, plan::read_cluster(text, "c", nullptr).value());
  if (!decision.ok()) {
    CORRO_CHECK(decision.status().message().find('\n') == std::string::npos);
    return;
  }
  CORRO_CHECK(decision->tables.size() == tables.tables.size());
  CORRO_CHECK(std::isfinite(decision->seconds) && decision->seconds >= 0);
  CORRO_CHECK(decision->servers == 0 || decision->copies >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tables = plan::read_tables({reinterpret_cast<const char*>(data), size}, "t");
  if (!tables.ok()) {
    CORRO_CHECK(tables.status().message().starts_with("t:"), tables.status().message());
    CORRO_CHECK(tables.status().message().find('\n') == std::string::npos);
    return 0;
  }
  decide(*tables, kHome);
  decide(*tables, kAlone);
  return 0;
}
