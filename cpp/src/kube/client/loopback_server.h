// For tests: certificates made on the spot, and an HTTP server with TLS on loopback.
#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "io/fd.h"

struct ssl_ctx_st;
struct ssl_st;

namespace corro::kube {

struct PemPair {
  std::string certificate;
  std::string key;
};
/// Makes an authority, or with `issuer` a certificate for `alternative_name` ("IP:127.0.0.1",
/// "DNS:api.example"), valid for an hour.
[[nodiscard]] PemPair make_certificate(const std::string& common_name,
                                       const std::string& alternative_name = "",
                                       const PemPair* issuer = nullptr);

struct LoopbackRequest {
  std::string text;         ///< Head and body as they came.
  std::string client_name;  ///< Common name of the client's certificate, or "".
  std::string server_name;  ///< SNI, or "".
  int connection = 0;       ///< Number of the connection, from 0.
};
/// A client's connection as bytes, for a protocol other than HTTP.
class LoopbackPeer {
 public:
  /// `rest` came before, behind the request.
  LoopbackPeer(ssl_st* ssl, std::string rest) : ssl_(ssl), rest_(std::move(rest)) {}
  /// Blocks until so many bytes are there, and takes them; fewer at the end.
  [[nodiscard]] std::string read(size_t bytes);
  void write(const std::string& bytes);

 private:
  ssl_st* ssl_;
  std::string rest_;
};
struct LoopbackReply {
  std::string text;     ///< Bytes to be sent as they are.
  bool hangs = false;   ///< Then nothing more until the server ends.
  bool closes = false;  ///< Then the connection is cut, without TLS's own end.
  /// Then the connection is this function's, and is cut when it returns.
  std::function<void(LoopbackPeer&)> talk = {};
};

/// Every connection has a thread. `reply` runs on those.
class LoopbackServer {
 public:
  using Reply = std::function<LoopbackReply(const LoopbackRequest&)>;
  /// With `client_authority` a client has to show a certificate of it.
  LoopbackServer(const PemPair& identity, Reply reply, const std::string& client_authority = "");
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  /// Blocks until so many requests have come.
  void wait_for_requests(size_t count);

 private:
  void accept();
  void serve(int fd, int number);
  void answer(ssl_st* ssl, int number);

  ssl_ctx_st* context_;
  Reply reply_;
  io::Fd listener_;
  uint16_t port_ = 0;
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
  Guarded<size_t> requests_;
  Guarded<std::vector<int>> open_;
  std::vector<std::thread> serving_;  ///< Of accept() alone, until it has ended.
  std::thread accepting_;
};

/// "HTTP/1.1 STATUS x", headers and a body of known length.
[[nodiscard]] std::string http_reply(int status, const std::string& body,
                                     const std::string& headers = "");

}  // namespace corro::kube
