#include "base/meeting_hosts.h"

#include <algorithm>

namespace corro {
namespace {

/// Calls `take` with each part between separators.
template <typename Take>
void split(std::string_view text, char separator, Take take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::vector<std::string> addresses_of_uri(std::string_view uri) {
  std::vector<std::string> addresses;
  split(uri, ';', [&](std::string_view part) {
    for (const std::string_view scheme : {"tcp://", "tcp6://"}) {
      if (!part.starts_with(scheme)) continue;
      std::string_view hosts = part.substr(scheme.size());
      hosts = hosts.substr(0, hosts.rfind(':'));
      split(hosts, ',', [&](std::string_view host) {
        std::string address(host);
        std::erase_if(address, [](char c) { return c == '[' || c == ']'; });
        if (!address.empty()) addresses.push_back(std::move(address));
      });
    }
  });
  return addresses;
}

std::string host_of_namespace(std::string_view text) {
  const size_t begin = text.find('-') + 1;  // After the name of the program.
  const size_t end = text.substr(0, text.rfind('@')).rfind('-');
  if (!text.starts_with("prte") || begin == 0 || end == std::string_view::npos || end <= begin)
    return "";
  return std::string(text.substr(begin, end - begin));
}

}  // namespace corro
