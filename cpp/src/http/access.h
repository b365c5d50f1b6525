// Who may see a protected page. Pure.
//
//   shown                                  without for_browsers      with it
//   Authorization: Bearer TOKEN            granted                   granted
//   Cookie: NAME=TOKEN                     401                       granted
//   ?token=TOKEN                           401                       entered: a cookie, and the page
//                                                                    once more without the token
//   nothing, or a wrong token              401                       403
//   anything, to a server with no token    granted on loopback, 403 elsewhere
//
// A POST takes no token in its address, and is 403 from a page of another site: browsers say in Origin
// whose page it is, and programs say nothing. The server has names that it does not know (a tunnel's,
// a proxy's), so Origin has to be the name under which the request itself has come.
//
// With for_browsers a server on loopback answers only to names of loopback and to addresses: a page
// of another site that has pointed its own name here (DNS rebinding) is told 421. Beyond loopback a
// server has names that it does not know; there the token protects alone.
#pragma once

#include <string>
#include <string_view>

namespace corro::http {

struct AccessRules {
  std::string token = {};  ///< "": none.
  bool is_loopback = false;
  bool for_browsers = false;
  std::string cookie = {};  ///< Its name: browsers send cookies to all ports of a host.
};

/// What a request shows of itself; "" where it does not.
struct Credentials {
  std::string_view host = {};           ///< Host.
  std::string_view query = {};          ///< Behind the "?".
  std::string_view authorization = {};  ///< Authorization.
  std::string_view cookies = {};        ///< Cookie.
  std::string_view origin = {};         ///< Origin.
  bool is_post = false;
};

enum class Access {
  kGranted,
  kEntered,    ///< By ?token=: to be remembered by a cookie.
  kUnknown,    ///< No token, or a wrong one, of a program.
  kForbidden,  ///< The same, of a person.
  kClosed,     ///< Not served beyond loopback, since there is no token.
  kForeign,    ///< A POST from a page of another site.
};

/// To a protected page.
[[nodiscard]] Access decide_access(const AccessRules& rules, const Credentials& shown);
/// Whether any page is served under this name.
[[nodiscard]] bool is_own_name(const AccessRules& rules, std::string_view host);

}  // namespace corro::http
