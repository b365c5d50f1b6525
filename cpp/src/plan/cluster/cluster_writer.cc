#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/cluster/cluster_file.h"
#include "plan/json.h"

namespace corro::plan {
namespace {

/// A name, in quotation marks unless it can only be read as text.
std::string word(const std::string& name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  const bool is_plain = name.front() >= 'a' && name.front() <= 'z' && name != "null" &&
                        name != "true" && name != "false" &&
                        name.find_first_not_of(kPlain) == std::string::npos;
  return is_plain ? name : Json(name).dump();
}

/// Fields of an object in one line.
class Fields {
 public:
  void put(std::string_view field, const std::string& value) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "" : ", ", field, value);
  }
  void put_unless_zero(std::string_view field, double value, Unit unit) {
    if (value != 0) put(field, quantity_text(value, unit));
  }
  void put(std::string_view field, const Link& link) {
    if (link == Link{}) return;
    Fields fields;
    fields.put("bandwidth", quantity_text(link.bandwidth, Unit::kBytesPerSecond));
    fields.put_unless_zero("latency", link.latency, Unit::kSeconds);
    put(field, fields.take());
  }
  [[nodiscard]] std::string take() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

std::string device_text(const DeviceType& type) {
  Fields peaks;
  for (int i = 0; i < kDTypeCount; ++i) {
    peaks.put_unless_zero(name_of(static_cast<DType>(i)), type.peak[static_cast<size_t>(i)],
                          Unit::kFlopsPerSecond);
  }
  Fields fields;
  fields.put("memory", quantity_text(type.memory, Unit::kBytes));
  fields.put("peak", peaks.take());
  fields.put("memory_bandwidth", quantity_text(type.memory_bandwidth, Unit::kBytesPerSecond));
  if (type.price != 0) fields.put("price", fmt::format("{}", type.price));
  return fields.take();
}

std::string host_text(const Cluster& cluster, const HostGroup& group) {
  Fields fields;
  fields.put("name", word(group.name));
  const auto put = [&](std::string_view field, uint32_t value, uint32_t usual) {
    if (value != usual) fields.put(field, fmt::format("{}", value));
  };
  put("count", group.count, 1);
  fields.put("device", word(cluster.types[group.type].name));
  put("devices", group.devices, 1);
  fields.put("link", group.link);
  fields.put("network", group.network);
  fields.put("to_host_memory", group.to_host_memory);
  fields.put_unless_zero("host_memory", group.host_memory, Unit::kBytes);
  put("first", group.first, 0);
  put("skip", group.skip, 0);
  return fields.take();
}

/// What cannot be written at all; the rest is the reader's to refuse.
Status check_writable(const Cluster& cluster) {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("cluster: {}", what));
  };
  if (!is_name(cluster.name)) return refuse(fmt::format("name: {}", kNameRule));
  for (size_t i = 0; i < cluster.types.size(); ++i) {
    if (!is_name(cluster.types[i].name)) return refuse(fmt::format("types[{}]: {}", i, kNameRule));
  }
  for (size_t i = 0; i < cluster.hosts.size(); ++i) {
    if (!is_name(cluster.hosts[i].name)) return refuse(fmt::format("hosts[{}]: {}", i, kNameRule));
    if (cluster.hosts[i].type < cluster.types.size()) continue;
    return refuse(fmt::format("hosts[{}]: has no type", i));
  }
  const size_t hosts = cluster.host_count();
  if (!cluster.matrix.empty() && cluster.matrix.size() != hosts * hosts) {
    return refuse(fmt::format("matrix: has {} numbers; the cluster has {} hosts",
                              cluster.matrix.size(), hosts));
  }
  return {};
}

std::string matrix_text(const Cluster& cluster) {
  const size_t hosts = cluster.host_count();
  std::string text = "matrix:\n";
  for (size_t i = 0; i < hosts; ++i) {
    const char* comma = "  - [";
    for (size_t j = 0; j < hosts; ++j) {
      const double value = cluster.matrix[i * hosts + j];
      text += std::exchange(comma, ", ") + (i == j ? "0" : fmt::format("{}", value));
    }
    text += "]\n";
  }
  return text;
}

}  // namespace

Result<std::string> write_cluster(const Cluster& cluster) {
  CORRO_TRY(check_writable(cluster));
  std::string text =
      fmt::format("corro_cluster: {}\nname: {}\ndevices:\n", kClusterVersion, word(cluster.name));
  for (const DeviceType& type : cluster.types) {
    text += fmt::format("  {}: {}\n", word(type.name), device_text(type));
  }
  text += "hosts:\n";
  for (const HostGroup& group : cluster.hosts) {
    text += fmt::format("  - {}\n", host_text(cluster, group));
  }
  if (!cluster.switches.empty()) text += "switches:\n";
  for (const SwitchLevel& level : cluster.switches) {
    Fields fields;
    fields.put("hosts", fmt::format("{}", level.hosts));
    fields.put("between", level.between);
    text += fmt::format("  - {}\n", fields.take());
  }
  if (!cluster.matrix.empty()) text += matrix_text(cluster);
  CORRO_TRY(read_cluster(text, "cluster", nullptr).status());
  return text;
}

}  // namespace corro::plan
