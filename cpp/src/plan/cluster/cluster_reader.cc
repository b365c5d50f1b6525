// How a cluster's files are read. A file names others that it includes; each is read once, before
// the file that names it, and may define device types and links alone. All definitions go into one
// table, in which a name stands once, so that the order of files changes nothing; only what corro
// knows by itself (known_devices.h) gives way to a definition. Hosts are read last, from the first
// file, and take types and links from the table. The first error ends it all.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest_name.h"
#include "plan/cluster/cluster_file.h"
#include "plan/cluster/host_names.h"
#include "plan/cluster/known_devices.h"
#include "plan/cluster/matrix_file.h"
#include "plan/json.h"
#include "plan/yaml.h"

namespace corro::plan {
namespace {

constexpr int64_t kMostCount = 1'000'000'000;
constexpr RealRange kMemory{1, 1e18};
constexpr RealRange kLatency{0, 3600};
constexpr RealRange kPeak{0, 1e21};

/// Device types and links by name, of all files.
struct Definitions {
  std::map<std::string, DeviceType, std::less<>> devices;
  std::map<std::string, Link, std::less<>> links;
};

std::string did_you_mean(const std::string& name, const std::set<std::string>& known) {
  const std::string nearest = completed_or_nearest_name(name, known);
  if (!nearest.empty()) return fmt::format("; did you mean {}?", nearest);
  return known.empty() ? "" : fmt::format("; there are {}", fmt::join(known, ", "));
}

/// Finds a definition, or says what there is.
template <typename Value>
std::optional<Value> look_up(const std::map<std::string, Value, std::less<>>& table,
                             std::string_view noun, const Json& name,
                             const std::set<std::string>& known, const Place& place,
                             Reading& reading) {
  if (!name.is_string() || !is_name(name.get_ref<const std::string&>())) {
    reading.fail(place, fmt::format("must be a {}'s name", noun));
    return {};
  }
  const auto& text = name.get_ref<const std::string&>();
  if (const auto found = table.find(text); found != table.end()) return found->second;
  reading.fail(place,
               fmt::format("there is no {} \"{}\"{}", noun, text, did_you_mean(text, known)));
  return {};
}

template <typename Value>
std::set<std::string> names_in(const std::map<std::string, Value, std::less<>>& table) {
  std::set<std::string> names;
  for (const auto& [name, value] : table) names.insert(name);
  return names;
}

Link read_new_link(const Json& value, const Place& place, Reading& reading) {
  ObjectReader object(value, place, reading, {"bandwidth", "latency"});
  return {.bandwidth = object.quantity("bandwidth", Unit::kBytesPerSecond, kBandwidthRange),
          .latency = object.quantity("latency", Unit::kSeconds, kLatency, 0)};
}

DeviceType read_device(const std::string& name, const Json& value, const Place& place,
                       Reading& reading) {
  ObjectReader object(value, place, reading, {"memory", "peak", "memory_bandwidth", "price"});
  DeviceType device{.name = name};
  device.memory = object.quantity("memory", Unit::kBytes, kMemory);
  device.memory_bandwidth =
      object.quantity("memory_bandwidth", Unit::kBytesPerSecond, kBandwidthRange);
  device.price = object.real("price", {0, 1e9}, 0);
  const Place at{&place, "peak", {}};
  const Json* peak = object.find(at.field);
  if (peak == nullptr) reading.fail(at, "is missing");
  if (peak == nullptr || !reading.ok()) return device;
  ObjectReader peaks(*peak, at, reading, {"bf16", "f16", "f32", "f64", "i8"});
  for (int i = 0; i < kDTypeCount; ++i) {
    device.peak[static_cast<size_t>(i)] =
        peaks.quantity(name_of(static_cast<DType>(i)), Unit::kFlopsPerSecond, kPeak, 0);
  }
  if (std::ranges::count(device.peak, 0.0) == kDTypeCount) {
    reading.fail(at, "must say the FLOP/s of at least one dtype");
  }
  return device;
}

/// Puts a definition into its table.
template <typename Value>
void define(std::map<std::string, Value, std::less<>>& table, std::string_view noun, Value value,
            const std::string& name, const Place& place, Reading& reading) {
  if (!is_name(name)) return reading.fail(place, fmt::format("a {}'s name {}", noun, kNameRule));
  if (!table.emplace(name, std::move(value)).second) {
    reading.fail(place, fmt::format("another file defines the {} too", noun));
  }
}

/// The hosts of the first file, and what joins them.
class HostsReader {
 public:
  HostsReader(const Definitions& definitions, Reading& reading, Cluster& cluster)
      : definitions_(definitions), reading_(reading), cluster_(cluster) {}

  void read(ObjectReader& top);

 private:
  void read_group(const Json& item, const Place& place);
  void read_name(ObjectReader& object, const Place& place, HostGroup& group);
  uint32_t read_type(ObjectReader& object, const Place& place);
  Link read_link(ObjectReader& object, const Place& place, std::string_view field);
  void read_switch(const Json& item, const Place& place);
  void check_networks(bool has_matrix);

  const Definitions& definitions_;
  Reading& reading_;
  Cluster& cluster_;
  HostNames names_;
  uint64_t devices_ = 0;
};

void HostsReader::read(ObjectReader& top) {
  const Json* hosts = top.find("hosts");
  if (hosts == nullptr || hosts->empty()) {
    return reading_.fail({nullptr, "hosts", {}}, "must be a list of at least one host");
  }
  top.list("hosts", [this](const Json& item, const Place& place) { read_group(item, place); });
  top.list("switches", [this](const Json& item, const Place& place) { read_switch(item, place); });
  if (reading_.ok()) check_networks(top.find("matrix") != nullptr);
}

void HostsReader::read_group(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"name", "count", "device", "devices", "link", "network", "to_host_memory",
                       "host_memory", "first", "skip"});
  HostGroup group;
  group.count = static_cast<uint32_t>(object.integer("count", {1, kMostCount}, 1));
  group.devices = static_cast<uint32_t>(object.integer("devices", {1, kMostCount}, 1));
  group.first = static_cast<uint32_t>(object.integer("first", {0, kMostCount}, 0));
  group.skip = static_cast<uint32_t>(object.integer("skip", {0, kMostCount}, 0));
  devices_ += uint64_t{group.count} * group.devices;
  if (devices_ > kMostDevices) {
    return reading_.fail(
        place, fmt::format("makes {} devices; a cluster has at most {}", devices_, kMostDevices));
  }
  group.type = read_type(object, place);
  read_name(object, place, group);
  group.link = read_link(object, place, "link");
  group.network = read_link(object, place, "network");
  group.to_host_memory = read_link(object, place, "to_host_memory");
  group.host_memory = object.quantity("host_memory", Unit::kBytes, {0, kMemory.most}, 0);
  if (group.devices > 1 && group.link.bandwidth == 0) {
    reading_.fail({&place, "link", {}},
                  fmt::format("is missing; it joins the {} devices of a host", group.devices));
  }
  cluster_.hosts.push_back(std::move(group));
}

void HostsReader::read_name(ObjectReader& object, const Place& place, HostGroup& group) {
  group.name = object.text("name", "host");
  const Place at{&place, "name", {}};
  if (!reading_.ok()) return;
  if (!is_name(group.name)) return reading_.fail(at, kNameRule);
  const char last = group.name.back();
  if (group.count > 1 && last >= '0' && last <= '9') {
    return reading_.fail(at, "must not end in a digit: the numbers of the hosts follow it");
  }
  const std::string other = names_.add(group);
  if (!other.empty()) reading_.fail(at, fmt::format("\"{}\" is another host's name", other));
}

uint32_t HostsReader::read_type(ObjectReader& object, const Place& place) {
  const Place at{&place, "device", {}};
  const Json* name = object.find(at.field);
  if (name == nullptr) reading_.fail(at, "is missing");
  if (!reading_.ok()) return 0;
  std::optional<DeviceType> type;
  const bool is_defined =
      name->is_string() && definitions_.devices.contains(name->get<std::string>());
  if (!is_defined && name->is_string()) type = find_known_device(name->get<std::string>());
  if (!type) {
    std::set<std::string> known = names_in(definitions_.devices);
    for (const KnownDevice& device : known_devices()) known.emplace(device.name);
    type = look_up(definitions_.devices, "device", *name, known, at, reading_);
  }
  if (!type) return 0;
  const auto found = std::ranges::find(cluster_.types, type->name, &DeviceType::name);
  const auto number = static_cast<uint32_t>(found - cluster_.types.begin());
  if (found == cluster_.types.end()) cluster_.types.push_back(*std::move(type));
  return number;
}

Link HostsReader::read_link(ObjectReader& object, const Place& place, std::string_view field) {
  const Json* value = object.find(field);
  const Place at{&place, field, {}};
  if (value == nullptr || !reading_.ok()) return {};
  if (value->is_object()) return read_new_link(*value, at, reading_);
  return look_up(definitions_.links, "link", *value, names_in(definitions_.links), at, reading_)
      .value_or(Link{});
}

void HostsReader::read_switch(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"hosts", "between"});
  SwitchLevel level;
  const uint32_t smaller = cluster_.switches.empty() ? 1 : cluster_.switches.back().hosts;
  level.hosts = static_cast<uint32_t>(object.integer("hosts", {1, kMostCount}));
  level.between = read_link(object, place, "between");
  if (!reading_.ok()) return;
  if (level.hosts % smaller != 0 || (!cluster_.switches.empty() && level.hosts == smaller)) {
    return reading_.fail(
        {&place, "hosts", {}},
        fmt::format("must be {} times a number of at least 2: switches of one level "
                    "stand behind whole switches of the next",
                    smaller));
  }
  if (level.between.bandwidth == 0) return reading_.fail({&place, "between", {}}, "is missing");
  cluster_.switches.push_back(level);
}

void HostsReader::check_networks(bool has_matrix) {
  const uint32_t count = cluster_.host_count();
  const Place hosts{nullptr, "hosts", {}};
  for (size_t i = 0; i < cluster_.hosts.size(); ++i) {
    if (count == 1 || has_matrix || cluster_.hosts[i].network.bandwidth > 0) continue;
    const Place group{&hosts, {}, i};
    reading_.fail({&group, "network", {}},
                  fmt::format("is missing; it joins the {} hosts of the cluster", count));
  }
}

/// The files, from the first one on.
class ClusterReader {
 public:
  explicit ClusterReader(const ReadText& read_text) : read_text_(read_text) {}

  Result<Cluster> read(std::string_view text, const std::string& name);

 private:
  void read_definitions(ObjectReader& top, Reading& reading);
  Status read_included(ObjectReader& top, Reading& reading, const std::string& name);
  Status read_included_file(const std::string& path, const Place& place, Reading& reading);
  Result<std::string> read_file(const std::string& path) const;
  Status read_matrix(const Json& matrix, const std::string& name, Reading& reading);

  const ReadText& read_text_;
  Definitions definitions_;
  std::vector<std::string> chain_;  ///< Files that are being read, each included by the one before.
  std::set<std::string> done_;
  Cluster cluster_;
};

/// A path that a file names, seen from where the file's own path is.
std::string beside(const std::string& file, const std::string& path) {
  return (std::filesystem::path(file).parent_path() / path).lexically_normal().string();
}

Result<Cluster> ClusterReader::read(std::string_view text, const std::string& name) {
  CORRO_ASSIGN(const Json document, parse_yaml(text, name));
  Reading reading(name, text);
  check_version(document, "corro_cluster", kClusterVersion, reading);
  ObjectReader top(
      document, {}, reading,
      {"corro_cluster", "name", "include", "devices", "links", "hosts", "switches", "matrix"});
  cluster_.name = top.text("name", "cluster");
  if (!is_name(cluster_.name)) reading.fail({nullptr, "name", {}}, kNameRule);
  CORRO_TRY(reading.status());
  CORRO_TRY(read_included(top, reading, name));
  read_definitions(top, reading);
  CORRO_TRY(reading.status());
  HostsReader(definitions_, reading, cluster_).read(top);
  CORRO_TRY(reading.status());
  if (const Json* matrix = top.find("matrix")) CORRO_TRY(read_matrix(*matrix, name, reading));
  return std::move(cluster_);
}

void ClusterReader::read_definitions(ObjectReader& top, Reading& reading) {
  top.fields("devices", [&](const std::string& name, const Json& value, const Place& place) {
    define(definitions_.devices, "device", read_device(name, value, place, reading), name, place,
           reading);
  });
  top.fields("links", [&](const std::string& name, const Json& value, const Place& place) {
    define(definitions_.links, "link", read_new_link(value, place, reading), name, place, reading);
  });
}

Status ClusterReader::read_included(ObjectReader& top, Reading& reading, const std::string& name) {
  chain_.push_back(std::filesystem::path(name).lexically_normal().string());
  Status status;
  top.list("include", [&](const Json& item, const Place& place) {
    if (!status.ok()) return;
    if (!item.is_string() || !is_name(item.get_ref<const std::string&>())) {
      return reading.fail(place, "must be a file's path");
    }
    status = read_included_file(beside(name, item.get<std::string>()), place, reading);
  });
  chain_.pop_back();
  return status.ok() ? reading.status() : status;
}

Status ClusterReader::read_included_file(const std::string& path, const Place& place,
                                         Reading& reading) {
  if (std::ranges::find(chain_, path) != chain_.end()) {
    reading.fail(place, fmt::format("includes itself: {} -> {}", fmt::join(chain_, " -> "), path));
    return {};
  }
  if (!done_.insert(path).second) return {};
  if (done_.size() > kMostIncludedFiles) {
    reading.fail(place, fmt::format("is one file too many; {} are included", kMostIncludedFiles));
    return {};
  }
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    reading.fail(place, text.status().message());
    return {};
  }
  CORRO_ASSIGN(const Json document, parse_yaml(*text, path));
  Reading included(path, *text);
  check_version(document, "corro_cluster", kClusterVersion, included);
  ObjectReader top(document, {}, included, {"corro_cluster", "include", "devices", "links"});
  CORRO_TRY(included.status());
  CORRO_TRY(read_included(top, included, path));
  read_definitions(top, included);
  return included.status();
}

Result<std::string> ClusterReader::read_file(const std::string& path) const {
  if (read_text_) return read_text_(path);
  return Status(Code::kInvalidArgument, path + ": no other files are read here");
}

Status ClusterReader::read_matrix(const Json& matrix, const std::string& name, Reading& reading) {
  const Place place{nullptr, "matrix", {}};
  const size_t hosts = cluster_.host_count();
  if (!matrix.is_string()) {
    cluster_.matrix = read_matrix_rows(matrix, place, reading, hosts);
    return reading.status();
  }
  const auto& file = matrix.get_ref<const std::string&>();
  if (!is_name(file)) reading.fail(place, "must be rows of bytes/s or a file's path");
  CORRO_TRY(reading.status());
  const std::string path = beside(name, file);
  const Result<std::string> text = read_file(path);
  if (!text.ok()) reading.fail(place, text.status().message());
  CORRO_TRY(reading.status());
  CORRO_ASSIGN(cluster_.matrix, parse_matrix(*text, path, hosts));
  return {};
}

}  // namespace

Result<Cluster> read_cluster(std::string_view text, std::string_view name,
                             const ReadText& read_text) {
  return ClusterReader(read_text).read(text, std::string(name));
}

}  // namespace corro::plan
