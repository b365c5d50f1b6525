// What a request shows of itself: whoever gets in has shown the token, and a name that is answered on
// loopback is an address or localhost. The first byte says where the text stands.
#include <string_view>

#include "base/check.h"
#include "http/access.h"
#include "io/socket.h"

namespace {

using namespace corro;

constexpr std::string_view kToken = "secret";

void check_entry(const http::Credentials& shown, std::string_view text) {
  const http::AccessRules rules{
      .token = std::string(kToken), .is_loopback = true, .for_browsers = true, .cookie = "corro-1"};
  const http::Access access = http::decide_access(rules, shown);
  const bool enters = access == http::Access::kGranted || access == http::Access::kEntered;
  CORRO_CHECK(!enters || text.find(kToken) != std::string_view::npos, text);
}

void check_name(std::string_view text) {
  if (!http::is_own_name({.is_loopback = true, .for_browsers = true}, text)) return;
  const std::string_view name = text.substr(0, text.rfind(':'));
  const bool has_zone = name.find('%') != std::string_view::npos;  // Of IPv6: any word.
  // "localhost" has no others, and addresses have none beyond f.
  const bool is_plain =
      name.find_first_of("gijkmnpqruvwxyzGIJKMNPQRUVWXYZ_/@") == std::string_view::npos;
  CORRO_CHECK(is_plain || has_zone, text);
}

/// A site's name and port stand at the end of its origin, and nowhere else.
void check_origin(std::string_view text) {
  constexpr std::string_view kHost = "node7:80";
  const http::AccessRules open{.is_loopback = true, .for_browsers = true};
  const auto access = http::decide_access(open, {.host = kHost, .origin = text, .is_post = true});
  if (access == http::Access::kForeign || text.empty()) return;
  CORRO_CHECK(text.size() >= kHost.size() + 3 && text.find("://") + 3 == text.size() - kHost.size(),
              text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      check_entry({.query = text}, text);
      break;
    case 1:
      check_entry({.authorization = text}, text);
      break;
    case 2:
      check_entry({.cookies = text}, text);
      break;
    case 3:
      check_name(text);
      break;
    default:
      check_origin(text);
  }
  return 0;
}
