// The only file that sees Boost.Asio, Boost.Beast and OpenSSL.
//
// One exchange, one connection, one thread: the caller's. A connection has an io_context of its
// own, and the caller runs it until the operation it has started is over, so every wait ends in one
// place (Connection::run): when the operation ends, at the deadline, or when a stop posts a close
// into the context from another thread. A close ends the pending operation with an error; nothing
// waits for the server. A connection goes back to the idle ones only after a whole answer, and is
// looked at before it is used again: whatever can be read from it then (an end, an alert) makes it
// useless.
//
// A connection without TLS differs in Wire alone, below all that speaks HTTP, and has no Identity.
#include "kube/client/https_transport.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace corro::kube {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kPieceBytes = size_t{64} << 10U;

/// Writes host and port as in a URL: "api.example:6443", "[::1]:6443".
std::string authority_of(const KubeCluster& cluster) {
  const bool is_v6 = cluster.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", cluster.host, cluster.port)
               : fmt::format("{}:{}", cluster.host, cluster.port);
}

/// Who this side is: a TLS context with the client certificate in it.
struct Identity {
  std::string certificate_pem;
  std::string key_pem;
  asio::ssl::context context;
};

Result<std::shared_ptr<Identity>> make_identity(const KubeCluster& cluster,
                                                const Credential& credential) {
  auto identity =
      std::make_shared<Identity>(Identity{credential.certificate_pem, credential.key_pem,
                                          asio::ssl::context(asio::ssl::context::tls_client)});
  asio::ssl::context& context = identity->context;
  error_code error;
  const auto refuse = [&](Code code, std::string_view what) {
    return Status(code, fmt::format("{}: {}: {}", cluster.url, what, error.message()));
  };
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  (void)context.set_verify_mode(asio::ssl::verify_peer, error);
  if (cluster.ca_pem.empty()) {
    (void)context.set_default_verify_paths(error);
  } else {
    (void)context.add_certificate_authority(asio::buffer(cluster.ca_pem), error);
  }
  if (error) return refuse(Code::kInvalidArgument, "cannot use the certificate authorities");
  if (credential.certificate_pem.empty()) return identity;
  (void)context.use_certificate_chain(asio::buffer(credential.certificate_pem), error);
  if (error) return refuse(Code::kUnauthenticated, "cannot use the client certificate");
  (void)context.use_private_key(asio::buffer(credential.key_pem), asio::ssl::context::pem, error);
  if (error) return refuse(Code::kUnauthenticated, "cannot use the client certificate's key");
  return identity;
}

/// A socket that bytes go through as they are, or through TLS: a stream for Beast.
class Wire {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): Asio's own name.
  using executor_type = tcp::socket::executor_type;

  /// Without an identity there is no TLS.
  Wire(asio::io_context& context, Identity* identity) : socket_(context) {
    if (identity != nullptr) tls_.emplace(socket_, identity->context);
  }
  [[nodiscard]] tcp::socket& socket() { return socket_; }
  /// Null without TLS.
  [[nodiscard]] asio::ssl::stream<tcp::socket&>* tls() { return tls_ ? &*tls_ : nullptr; }

  executor_type get_executor() { return socket_.get_executor(); }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) {
      tls_->async_read_some(buffers, std::forward<Handler>(handler));
    } else {
      socket_.async_read_some(buffers, std::forward<Handler>(handler));
    }
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) {
      tls_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      socket_.async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

 private:
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
};

/// Confined to the thread that holds it.
class Connection {
 public:
  Connection(const KubeCluster& cluster, std::shared_ptr<Identity> identity)
      : cluster_(cluster), identity_(std::move(identity)), wire_(context_, identity_.get()) {}

  [[nodiscard]] const std::shared_ptr<Identity>& identity() const { return identity_; }
  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] Time last_used() const { return last_used_; }
  /// False if the server has ended it, or said something that nobody asked for.
  [[nodiscard]] bool is_quiet();
  /// Everything below ends at once when `stop` is requested, until this object is destroyed.
  class Watched;

  [[nodiscard]] Status connect(Time end);
  /// Sends a request and receives the answer; closes the connection unless it can be used again.
  [[nodiscard]] Status exchange(const http::request<http::string_body>& request,
                                const ExchangeLimits& limits, size_t most_head_bytes,
                                const Receive& receive);

 private:
  using Parser = http::response_parser<http::buffer_body>;

  template <typename Start>
  error_code run(Time end, Start&& start);
  [[nodiscard]] Status connect_socket(Time end);
  [[nodiscard]] Status shake_hands(Time end);
  [[nodiscard]] Status read_body(Parser& parser, const Head& head, const ExchangeLimits& limits,
                                 const Receive& receive);
  [[nodiscard]] Status failure(std::string_view doing, error_code error) const;
  void close() {
    error_code ignored;
    resolver_.cancel();
    (void)wire_.socket().close(ignored);
    is_open_ = false;
  }

  const KubeCluster& cluster_;
  const std::shared_ptr<Identity> identity_;
  asio::io_context context_{1};
  tcp::resolver resolver_{context_};
  Wire wire_;
  boost::beast::flat_buffer buffer_;
  bool is_open_ = false;
  bool is_stopped_ = false;
  bool is_late_ = false;
  Time last_used_ = {};
};

class Connection::Watched {
 public:
  Watched(Connection& connection, const std::stop_token& stop)
      : connection_(connection), waker_(std::make_unique<Waker>(stop, [&connection] {
          asio::post(connection.context_, [&connection] {
            connection.is_stopped_ = true;
            connection.close();
          });
        })) {}
  /// What a stop posted in the last moment is done now, not in the next exchange.
  ~Watched() {  // NOLINT(bugprone-exception-escape): what is run here closes a socket, no more.
    waker_.reset();
    connection_.context_.restart();
    connection_.context_.poll();
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  using Waker = std::stop_callback<std::function<void()>>;
  Connection& connection_;
  std::unique_ptr<Waker> waker_;
};

/// Starts an operation and runs until it has ended. `start` is given the handler to call.
template <typename Start>
error_code Connection::run(Time end, Start&& start) {
  bool is_done = false;
  error_code outcome;
  start([&is_done, &outcome](error_code error, const auto&... /*result*/) {
    outcome = error;
    is_done = true;
  });
  while (!is_done) {
    context_.restart();
    const Duration left = end - monotonic_now();
    if (left <= Duration::zero() && !is_late_) {
      is_late_ = true;
      close();
    }
    if (is_late_ || is_stopped_) {
      context_.run_one();  // The operation was cancelled: its handler comes.
    } else {
      context_.run_one_for(std::min<Duration>(left, std::chrono::hours(1)));
    }
  }
  return is_stopped_ || is_late_ ? error_code(asio::error::operation_aborted) : outcome;
}

Status Connection::failure(std::string_view doing, error_code error) const {
  const auto say = [&](Code code, std::string_view what) {
    return Status(code, fmt::format("{}: {}: {}", cluster_.url, doing, what));
  };
  if (is_stopped_) return say(Code::kCancelled, "stopped");
  if (is_late_) return say(Code::kDeadlineExceeded, "no answer in time");
  const bool is_cut = error == asio::error::eof || error == asio::ssl::error::stream_truncated ||
                      error == http::error::end_of_stream || error == http::error::partial_message;
  if (is_cut) return say(Code::kUnavailable, "the server ended the connection");
  if (error.category() == http::make_error_code(http::error::bad_version).category()) {
    return say(Code::kDataLoss, "is no HTTP: " + error.message());
  }
  const bool is_tls = error.category() == asio::error::get_ssl_category();
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  // The server's alerts about our certificate: RFC 8446, section 6.2.
  const bool is_alert = is_tls && (reason >= SSL_R_SSLV3_ALERT_BAD_CERTIFICATE ||
                                   reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED);
  if (is_alert) return say(Code::kUnauthenticated, "the server refuses: " + error.message());
  return say(Code::kUnavailable, error.message());
}

bool Connection::is_quiet() {
  if (!is_open_) return false;
  std::array<char, 1> byte{};
  const ssize_t got =
      ::recv(wire_.socket().native_handle(), byte.data(), byte.size(), MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

Status Connection::connect(Time end) {
  CORRO_TRY(connect_socket(end));
  if (wire_.tls() != nullptr) CORRO_TRY(shake_hands(end));
  is_open_ = true;
  return {};
}

Status Connection::connect_socket(Time end) {
  error_code error;
  std::vector<tcp::endpoint> endpoints;
  const auto address = asio::ip::make_address(cluster_.host, error);
  if (!error) {
    endpoints.emplace_back(address, cluster_.port);
  } else {
    error = run(end, [&](auto handler) {
      resolver_.async_resolve(cluster_.host, std::to_string(cluster_.port),
                              [&endpoints, handler](error_code outcome, const auto& found) mutable {
                                for (const auto& entry : found)
                                  endpoints.push_back(entry.endpoint());
                                handler(outcome);
                              });
    });
    if (error) return failure(fmt::format("cannot find host {}", cluster_.host), error);
  }
  tcp::socket& socket = wire_.socket();
  error = run(end, [&](auto handler) { asio::async_connect(socket, endpoints, handler); });
  if (error) return failure("cannot connect", error);
  (void)socket.set_option(tcp::no_delay(true), error);
  (void)socket.set_option(asio::socket_base::keep_alive(true), error);
  // A server that vanished without a word is noticed within a minute, in an idle watch too.
  constexpr std::array<std::pair<int, int>, 4> kOptions = {
      {{TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}, {TCP_USER_TIMEOUT, 60000}}};
  for (const auto& [name, value] : kOptions) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value);
  }
  return {};
}

Status Connection::shake_hands(Time end) {
  asio::ssl::stream<tcp::socket&>& tls = *wire_.tls();
  SSL* ssl = tls.native_handle();
  const std::string& name = cluster_.server_name;
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) != 1) {
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set1_host(ssl, name.c_str()) != 1 || SSL_set_tlsext_host_name(ssl, name.c_str()) != 1) {
      return {Code::kInvalidArgument,
              fmt::format("{}: {} cannot be a TLS server's name", cluster_.url, name)};
    }
  }
  const error_code error =
      run(end, [&](auto handler) { tls.async_handshake(asio::ssl::stream_base::client, handler); });
  if (!error) return {};
  const long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK && !is_stopped_ && !is_late_) {
    return {Code::kUnauthenticated,
            fmt::format("{}: the server's certificate is refused: {}", cluster_.url,
                        X509_verify_cert_error_string(verified))};
  }
  return failure("TLS handshake", error);
}

Status Connection::exchange(const http::request<http::string_body>& request,
                            const ExchangeLimits& limits, size_t most_head_bytes,
                            const Receive& receive) {
  const Time end = std::min(limits.deadline, monotonic_now() + limits.answer);
  error_code error = run(end, [&](auto handler) { http::async_write(wire_, request, handler); });
  if (error) return failure("send", error);
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(most_head_bytes));
  parser.body_limit(boost::none);
  error = run(end, [&](auto handler) { http::async_read_header(wire_, buffer_, parser, handler); });
  if (error) return failure("receive", error);
  Head head;
  head.status = static_cast<int>(parser.get().result_int());
  for (const auto& field : parser.get()) {
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    head.headers[std::move(name)] = std::string(field.value());
  }
  CORRO_TRY(receive(head, {}));
  CORRO_TRY(read_body(parser, head, limits, receive));
  last_used_ = monotonic_now();
  if (!parser.keep_alive()) close();
  return {};
}

Status Connection::read_body(Parser& parser, const Head& head, const ExchangeLimits& limits,
                             const Receive& receive) {
  std::vector<char> piece(kPieceBytes);
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const Time end = std::min(limits.deadline, monotonic_now() + limits.silence);
    error_code error =
        run(end, [&](auto handler) { http::async_read_some(wire_, buffer_, parser, handler); });
    const size_t bytes = piece.size() - parser.get().body().size;
    if (bytes > 0) CORRO_TRY(receive(head, {piece.data(), bytes}));
    if (error == http::error::need_buffer) continue;
    if (error) return failure("receive", error);
  }
  return {};
}

class HttpsTransport final : public Transport {
 public:
  HttpsTransport(KubeCluster cluster, std::shared_ptr<Credentials> credentials,
                 HttpsOptions options, bool has_tls)
      : cluster_(std::move(cluster)),
        credentials_(std::move(credentials)),
        options_(std::move(options)),
        has_tls_(has_tls) {}

  [[nodiscard]] Exchanged exchange(const Request& request, const ExchangeLimits& limits,
                                   const std::stop_token& stop, const Receive& receive) override;

 private:
  using Connections = std::vector<std::unique_ptr<Connection>>;
  struct State {
    std::shared_ptr<Identity> identity = {};  ///< Null without TLS.
    Connections idle = {};
  };
  /// The newest idle connection, or one that is not open.
  [[nodiscard]] Result<std::unique_ptr<Connection>> take(const Credential& credential);
  void give_back(std::unique_ptr<Connection> connection);
  [[nodiscard]] http::request<http::string_body> message_of(const Request& request,
                                                            const Credential& credential) const;

  const KubeCluster cluster_;
  const std::shared_ptr<Credentials> credentials_;
  const HttpsOptions options_;
  const bool has_tls_;
  Guarded<State> state_;
};

Result<std::unique_ptr<Connection>> HttpsTransport::take(const Credential& credential) {
  Connections useless;  // Closed after the lock is released.
  auto state = state_.lock();
  const bool is_other = !state->identity ||
                        state->identity->certificate_pem != credential.certificate_pem ||
                        state->identity->key_pem != credential.key_pem;
  if (has_tls_ && is_other) {
    CORRO_ASSIGN(state->identity, make_identity(cluster_, credential));
    useless.swap(state->idle);
  }
  const Time now = monotonic_now();
  while (!state->idle.empty()) {
    std::unique_ptr<Connection> newest = std::move(state->idle.back());
    state->idle.pop_back();
    if (now - newest->last_used() <= options_.most_idle && newest->is_quiet()) return newest;
    useless.push_back(std::move(newest));
  }
  return std::make_unique<Connection>(cluster_, state->identity);
}

void HttpsTransport::give_back(std::unique_ptr<Connection> connection) {
  auto state = state_.lock();
  const Time now = monotonic_now();
  std::erase_if(state->idle,
                [&](const auto& idle) { return now - idle->last_used() > options_.most_idle; });
  if (connection->identity() == state->identity) state->idle.push_back(std::move(connection));
}

http::request<http::string_body> HttpsTransport::message_of(const Request& request,
                                                            const Credential& credential) const {
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(cluster_.base_path + request.target);
  message.set(http::field::host, authority_of(cluster_));
  message.set(http::field::user_agent, options_.user_agent);
  message.set(http::field::accept, "application/json");
  if (!credential.token.empty()) {
    message.set(http::field::authorization, "Bearer " + credential.token);
  }
  if (!request.content_type.empty()) message.set(http::field::content_type, request.content_type);
  message.body() = request.body;
  message.prepare_payload();
  return message;
}

Exchanged HttpsTransport::exchange(const Request& request, const ExchangeLimits& limits,
                                   const std::stop_token& stop, const Receive& receive) {
  Result<Credential> credential = credentials_->current(stop);
  if (!credential.ok()) return {credential.status(), false};
  Result<std::unique_ptr<Connection>> taken = take(*credential);
  if (!taken.ok()) return {taken.status(), false};
  std::unique_ptr<Connection> connection = std::move(taken).value();
  Exchanged end;
  int answered = 0;
  {
    const Connection::Watched watched(*connection, stop);
    if (!connection->is_open()) {
      end.status = connection->connect(std::min(limits.deadline, monotonic_now() + limits.connect));
      if (!end.status.ok()) return end;
    }
    end.sent = true;
    const auto note_status = [&](const Head& head, std::string_view piece) {
      answered = head.status;
      return receive(head, piece);
    };
    end.status = connection->exchange(message_of(request, *credential), limits,
                                      options_.most_head_bytes, note_status);
  }
  if (answered == 401) credentials_->refused(*credential);
  if (end.status.ok() && connection->is_open()) give_back(std::move(connection));
  return end;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_https_transport(const KubeCluster& cluster,
                                                        std::shared_ptr<Credentials> credentials,
                                                        HttpsOptions options) {
  CORRO_TRY(make_identity(cluster, {}).status());
  return std::unique_ptr<Transport>(
      std::make_unique<HttpsTransport>(cluster, std::move(credentials), std::move(options), true));
}

Result<std::unique_ptr<Transport>> make_loopback_transport(const std::string& address,
                                                           uint16_t port, HttpsOptions options) {
  error_code error;
  const auto parsed = asio::ip::make_address(address, error);
  if (error || !parsed.is_loopback()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: without TLS only a loopback address is spoken to", address));
  }
  KubeCluster cluster;
  cluster.host = address;
  cluster.port = port;
  cluster.url = "http://" + authority_of(cluster);
  auto nobody = std::make_shared<UserCredentials>(KubeUser{}, cluster);
  return std::unique_ptr<Transport>(std::make_unique<HttpsTransport>(
      std::move(cluster), std::move(nobody), std::move(options), false));
}

}  // namespace corro::kube
