#include "launch/health_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace corro::launch {
namespace {

using std::chrono::duration;

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

/// Columns as wide as their widest cell; the first row is the head.
std::string format_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  const auto width_of = [](const std::string& cell) {
    return static_cast<size_t>(
        std::ranges::count_if(cell, [](char c) { return (c & '\xC0') != '\x80'; }));
  };
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] - width_of(row[i]) + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

/// Hosts that something was found of, the worst first; then the others.
std::vector<size_t> worst_hosts_first(const Health& health, const std::vector<Finding>& findings) {
  std::vector<size_t> order;
  const auto add = [&](size_t host) {
    if (std::ranges::count(order, host) == 0) order.push_back(host);
  };
  for (const Finding& finding : findings) std::ranges::for_each(finding.hosts, add);
  for (size_t host = 0; host < health.hosts.size(); ++host) add(host);
  return order;
}

std::string format_hosts(const Health& health, const std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> rows = {{"host", "corro", "Python", "torch", "kernel",
                                                 "machine", "cores", "GPUs", "memory free",
                                                 "/dev/shm free", "clock"}};
  for (const size_t host : worst_hosts_first(health, findings)) {
    const HostHealth& one = health.hosts[host];
    if (!one.answers()) {
      rows.push_back({one.name, "no answer"});
      continue;
    }
    rows.push_back({one.name, one.corro, or_dash(one.facts.python), or_dash(one.facts.torch),
                    one.facts.kernel, one.architecture, fmt::format("{}", one.machine.facts.cores),
                    fmt::format("{}", one.machine.facts.gpus),
                    format_memory(one.machine.facts.memory_bytes),
                    format_memory(one.facts.shared_free),
                    fmt::format("{}{} ± {}", one.clock < Duration::zero() ? "" : "+",
                                format_time(one.clock), format_time(one.clock_error))});
  }
  return format_columns(rows);
}

std::vector<const LinkHealth*> slowest_first(const Health& health) {
  std::vector<const LinkHealth*> links;
  for (const LinkHealth& one : health.links)
    if (one.measured()) links.push_back(&one);
  std::ranges::sort(links, {}, [](const LinkHealth* one) { return one->bytes_per_second; });
  return links;
}

std::string format_links(const Health& health) {
  constexpr size_t kShown = 8;
  const auto links = slowest_first(health);
  if (links.empty()) return "";
  const UsualLink usual = usual_link(health.links);
  std::vector<std::vector<std::string>> rows = {
      {"from", "to", "at", "bandwidth", "round trip", ""}};
  for (size_t i = 0; i < links.size() && i < kShown; ++i) {
    const LinkHealth& one = *links[i];
    rows.push_back({health.hosts[one.link.from].name, health.hosts[one.link.to].name, one.address,
                    format_rate(one.bytes_per_second), format_time(one.round_trip),
                    is_slow(one, usual) ? "slow" : ""});
  }
  std::string text = "\n" + format_columns(rows);
  if (links.size() > kShown) {
    text += fmt::format("and {} more, {} to {}\n", links.size() - kShown,
                        format_rate(links[kShown]->bytes_per_second),
                        format_rate(links.back()->bytes_per_second));
  }
  return text;
}

size_t measured_links(const Health& health) {
  return static_cast<size_t>(std::ranges::count_if(health.links, &LinkHealth::measured));
}

}  // namespace

std::string format_health(const Health& health, const std::vector<Finding>& findings) {
  const size_t hosts = health.hosts.size();
  std::string text = fmt::format("{} host{} checked in {:.1f} s", hosts, hosts == 1 ? "" : "s",
                                 duration<double>(health.took).count());
  if (!health.links.empty()) {
    text += fmt::format("; {} of {} links between them measured, over one connection each",
                        measured_links(health), health.links.size());
  }
  text += '\n';
  if (findings.empty()) text += "nothing is wrong\n";
  for (const Finding& finding : findings)
    text += fmt::format("\n{}\n  do  {}\n", finding.what, finding.advice);
  return text + "\n" + format_hosts(health, findings) + format_links(health);
}

std::string format_health_json(const Health& health, const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  const auto in_seconds = [](Duration time) { return duration<double>(time).count(); };
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json json;
  json["findings"] = Json::array();
  for (const Finding& finding : findings) {
    Json names = Json::array();
    for (const size_t host : finding.hosts) names.push_back(health.hosts[host].name);
    json["findings"].push_back({{"kind", name_of(finding.kind)},
                                {"hosts", names},
                                {"what", finding.what},
                                {"do", finding.advice}});
  }
  json["hosts"] = Json::array();
  for (const HostHealth& one : health.hosts) {
    Json host = {{"host", one.name}, {"failure", or_null(one.failure)}};
    if (one.answers()) {
      host["corro"] = one.corro;
      host["python"] = or_null(one.facts.python);
      host["torch"] = or_null(one.facts.torch);
      host["kernel"] = one.facts.kernel;
      host["machine"] = one.architecture;
      host["cores"] = one.machine.facts.cores;
      host["gpus"] = one.machine.facts.gpus;
      host["memory_free_bytes"] = one.machine.facts.memory_bytes;
      host["shm_bytes"] = one.facts.shared_bytes;
      host["shm_free_bytes"] = one.facts.shared_free;
      host["clock_ahead_seconds"] = in_seconds(one.clock);
      host["clock_error_seconds"] = in_seconds(one.clock_error);
      host["addresses"] = one.addresses;
    }
    json["hosts"].push_back(std::move(host));
  }
  json["links"] = Json::array();
  for (const LinkHealth& one : health.links) {
    json["links"].push_back(
        {{"from", health.hosts[one.link.from].name},
         {"to", health.hosts[one.link.to].name},
         {"address", or_null(one.address)},
         {"failure", or_null(one.failure)},
         {"bits_per_second", one.measured() ? Json(one.bytes_per_second * 8) : Json()},
         {"round_trip_seconds", one.measured() ? Json(in_seconds(one.round_trip)) : Json()}});
  }
  json["seconds"] = in_seconds(health.took);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace corro::launch
