#include "http/access.h"

#include <sodium.h>

#include <algorithm>
#include <cctype>

#include "io/socket.h"

namespace corro::http {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kSpaces = " \t";

/// Takes as long wherever the texts differ.
bool equals_secretly(std::string_view left, std::string_view right) {
  return left.size() == right.size() && sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

/// The value of `name` in "a=1; b=2", where the parts are apart by `separator`; "": there is none.
std::string_view value_in(std::string_view list, std::string_view name, char separator) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(separator), list.size());
    std::string_view part = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    part.remove_prefix(std::min(part.find_first_not_of(kSpaces), part.size()));
    const bool is_it = part.starts_with(name) && part.substr(name.size()).starts_with('=');
    if (is_it) return part.substr(name.size() + 1);
  }
  return {};
}

bool equals_ignoring_case(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, [](unsigned char one, unsigned char other) {
    return std::tolower(one) == std::tolower(other);
  });
}

/// Whether a request to `host` is of a page of it, or of a program.
bool is_own_origin(std::string_view host, std::string_view origin) {
  constexpr std::string_view kBehindScheme = "://";
  if (origin.empty()) return true;
  const size_t scheme = origin.find(kBehindScheme);
  if (scheme == std::string_view::npos) return false;  // "null": of no site.
  return !host.empty() && equals_ignoring_case(origin.substr(scheme + kBehindScheme.size()), host);
}

}  // namespace

Access decide_access(const AccessRules& rules, const Credentials& shown) {
  if (shown.is_post && !is_own_origin(shown.host, shown.origin)) return Access::kForeign;
  if (rules.token.empty()) return rules.is_loopback ? Access::kGranted : Access::kClosed;
  const std::string_view bearer = shown.authorization;
  if (bearer.starts_with(kBearer) && equals_secretly(bearer.substr(kBearer.size()), rules.token))
    return Access::kGranted;
  if (!rules.for_browsers) return Access::kUnknown;
  const std::string_view entry = shown.is_post ? "" : value_in(shown.query, "token", '&');
  if (equals_secretly(entry, rules.token)) return Access::kEntered;
  const bool is_known = equals_secretly(value_in(shown.cookies, rules.cookie, ';'), rules.token);
  return is_known ? Access::kGranted : Access::kForbidden;
}

bool is_own_name(const AccessRules& rules, std::string_view host) {
  if (!rules.for_browsers || !rules.is_loopback) return true;
  const bool has_port = host.rfind(':') != std::string_view::npos && !host.ends_with(']');
  const std::string_view name = has_port ? host.substr(0, host.rfind(':')) : host;
  // An address is nobody's name. A port that is forwarded may have any number here.
  return equals_ignoring_case(name, "localhost") || io::SocketAddress::parse_host(name, 0).ok();
}

}  // namespace corro::http
