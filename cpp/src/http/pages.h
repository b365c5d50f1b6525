// Pages: a few pages for probes, for Prometheus and for people, over plain HTTP.
//
//   CORRO_ASSIGN(auto pages, http::Pages::listen({.address = "127.0.0.1:8080"},
//                                                {{"/healthz", {[](const http::Query&) { return http::Page{}; }}}}));
//
// Pages that say nothing of jobs are for everybody. Those that do are protected: who may see them
// says access.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"
#include "http/query.h"

namespace corro::http {

/// What Prometheus reads, and people.
inline constexpr std::string_view kPlainText = "text/plain; version=0.0.4; charset=utf-8";
inline constexpr std::string_view kJson = "application/json";

struct Page {
  int status = 200;
  std::string text = "ok\n";
  std::string_view type = kPlainText;  ///< Content-Type; of a text that is constant.
};

/// A file that was embedded when the program was built (cmake/CorroAssets.cmake). All constant.
struct Asset {
  std::string_view name;  ///< "style.css"
  std::string_view type;  ///< Content-Type.
  std::string_view text;
};

struct PagesOptions {
  std::string address = "127.0.0.1:8080";  ///< "ADDRESS:PORT", IPv6 in brackets; port 0: any.
  std::string token = {};                  ///< For protected pages; "": on loopback alone.
  /// People open them, too: `?token=` is taken for a cookie, and whoever may not is told in 403.
  bool for_browsers = false;
};

/// Serves from a thread of its own until it is destroyed. Its sockets are closed in children that
/// execute another program.
class Pages {
 public:
  struct Route {
    /// Called on the server's thread; must not block long.
    std::function<Page(const Query& query)> make;
    bool is_protected = false;
    /// The same for a POST, whose body is not read; empty: none is taken. The route is protected, and a
    /// browser's POST has to come from a page of this server (access.h).
    std::function<Page(const Query& query)> order = {};
  };

  /// INVALID_ARGUMENT for an address that is none, UNAVAILABLE if it cannot be listened at.
  [[nodiscard]] static Result<std::unique_ptr<Pages>> listen(const PagesOptions& options,
                                                             std::map<std::string, Route> routes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// "127.0.0.1:8080", with the port that was taken.
  [[nodiscard]] std::string address() const;

 private:
  class Server;
  explicit Pages(std::unique_ptr<Server> server);

  const std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace corro::http
