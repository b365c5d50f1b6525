// HttpPages: a few pages for probes and Prometheus, over plain HTTP.
//
//   CORRO_ASSIGN(auto pages, HttpPages::listen({.address = "127.0.0.1:8080"},
//                                              {{"/healthz", {[] { return HttpPage{}; }}}}));
//
// Pages that say nothing of jobs are for everybody. Those that do are served beyond loopback only
// to who shows the token.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"

namespace corro::kube {

struct HttpPage {
  int status = 200;
  std::string text = "ok\n";
};

struct HttpPagesOptions {
  std::string address = "127.0.0.1:8080";  ///< "HOST:PORT", IPv6 in brackets; port 0: any.
  std::string token = {};                  ///< For protected pages; "": on loopback alone.
};

/// Serves from a thread of its own until it is destroyed.
class HttpPages {
 public:
  struct Route {
    std::function<HttpPage()> make;  ///< Called on the server's thread; must not block long.
    bool is_protected = false;
  };

  /// INVALID_ARGUMENT for an address that is none, UNAVAILABLE if it is taken.
  [[nodiscard]] static Result<std::unique_ptr<HttpPages>> listen(
      const HttpPagesOptions& options, std::map<std::string, Route> routes);
  ~HttpPages();
  HttpPages(const HttpPages&) = delete;
  HttpPages& operator=(const HttpPages&) = delete;

  /// "127.0.0.1:8080", with the port that was taken.
  [[nodiscard]] std::string address() const;

 private:
  class Server;
  explicit HttpPages(std::unique_ptr<Server> server);

  const std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace corro::kube
