#include "pod/hostfile.h"

#include <algorithm>
#include <utility>

#include "io/files.h"

namespace corro::pod {

std::set<std::string> hosts_in(std::string_view hostfile) {
  std::set<std::string> hosts;
  while (!hostfile.empty()) {
    const std::string_view line = hostfile.substr(0, hostfile.find('\n'));
    const std::string_view host = line.substr(0, line.find_first_of(" \t:#"));
    if (!host.empty()) hosts.emplace(host);
    hostfile.remove_prefix(std::min(line.size() + 1, hostfile.size()));
  }
  return hosts;
}

bool HostfileWatch::look() {
  constexpr size_t kMost = size_t{16} << 20U;
  if (path_.empty()) return false;
  const auto text = io::read_file(path_, kMost);
  if (!text.ok()) return false;
  std::set<std::string> before = std::exchange(named_, hosts_in(*text));
  for (const std::string& host : named_) before.erase(host), gone_.erase(host);
  gone_.insert(before.begin(), before.end());
  return !before.empty();
}

}  // namespace corro::pod
