// read_cluster() with files that hold anything: the first one is what stands before a line of
// dashes and "file", and every other file is the rest. What is accepted is written, read again and
// asked.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "plan/cluster/cluster_file.h"

namespace {

using corro::plan::Cluster;

void ask(const Cluster& cluster) {
  const uint32_t hosts = cluster.host_count();
  const uint32_t devices = cluster.device_count();
  CORRO_CHECK(devices >= hosts && devices <= corro::plan::kMostDevices);
  CORRO_CHECK(cluster.host_of(0) == 0 && cluster.host_of(devices - 1) == hosts - 1);
  for (uint32_t host = 0; host < std::min(hosts, 8U); ++host) {
    CORRO_CHECK(!cluster.host_name(host).empty());
    CORRO_CHECK(cluster.group_of(host).type < cluster.types.size());
    const corro::plan::Link link = cluster.link_between_hosts(host, hosts - 1);
    CORRO_CHECK(host == hosts - 1 || link.bandwidth > 0);
    CORRO_CHECK(cluster.without_host(host).host_count() == hosts - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  constexpr std::string_view kMark = "\n---file\n";
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t mark = std::min(all.find(kMark), size);
  const std::string_view others = all.substr(std::min(mark + kMark.size(), size));
  const auto cluster = plan::read_cluster(
      all.substr(0, mark), "c", [&](const std::string& path) -> Result<std::string> {
        if (path == "none") return Status(Code::kNotFound, path + ": there is no such file");
        return std::string(others);
      });
  if (!cluster.ok()) {
    CORRO_CHECK(cluster.status().message().find(':') != std::string::npos);
    CORRO_CHECK(cluster.status().message().find('\n') == std::string::npos);
    return 0;
  }
  ask(*cluster);
  const auto text = plan::write_cluster(*cluster);
  CORRO_CHECK(text.ok(), text.status().message());
  const auto again = plan::read_cluster(*text, "again", nullptr);
  CORRO_CHECK(again.ok(), again.status().message());
  Cluster expected = *cluster;  // A diagonal may hold anything, and is written as 0.
  for (size_t i = 0, n = cluster->host_count(); i * n < expected.matrix.size(); ++i) {
    expected.matrix[i * n + i] = 0;
  }
  CORRO_CHECK(*again == expected, *text);
  return 0;
}
