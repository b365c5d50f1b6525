// The end of every wait for a server is here. An operation is ended by closing its socket:
//
//   over      its handler says so
//   deadline  run_until() closes the socket, and the handler says that the operation was cancelled
//   stop      Watched posts a close into the connection's context from the stopping thread, and the
//             thread that runs the context does the same
//
// Nothing waits for the server. A connection without TLS differs in Wire alone and has no Identity.
#include "kube/client/https_connection.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>

namespace corro::kube {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// Keepalive notices a server that vanished without a word within a minute, in an idle watch too.
/// `unread` is how long sent bytes may be neither acknowledged nor taken by the server.
void set_patience(tcp::socket& socket, std::chrono::milliseconds unread) {
  const std::array<std::pair<int, int>, 4> options = {
      {{TCP_KEEPIDLE, 30},
       {TCP_KEEPINTVL, 10},
       {TCP_KEEPCNT, 3},
       {TCP_USER_TIMEOUT, static_cast<int>(unread.count())}}};
  for (const auto& [name, value] : options) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value);
  }
}

}  // namespace

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

void Connection::close() {
  error_code ignored;
  resolver_.cancel();
  (void)wire_.socket().close(ignored);
  is_open_ = false;
}

Connection::Watched::Watched(Connection& connection, const std::stop_token& stop)
    : connection_(connection), waker_(std::make_unique<Waker>(stop, [&connection] {
        asio::post(connection.context_, [&connection] {
          connection.is_stopped_ = true;
          connection.close();
        });
      })) {}

// NOLINTNEXTLINE(bugprone-exception-escape): what is run here closes a socket, no more.
Connection::Watched::~Watched() {
  waker_.reset();
  connection_.context_.restart();
  connection_.context_.poll();
}

void Connection::run_until(const bool& is_done, Time end) {
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
}

void Connection::poll() {
  context_.restart();
  context_.poll();
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
  set_patience(socket, std::chrono::minutes(1));
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

namespace {

/// One read and one write are started at most. Each stays with Asio until there is something to
/// receive, or room to send; poll() ends it then. So the socket becomes ready for epoll exactly
/// when a call here can do something, unless a write's poll() has ended a read: the caller reads
/// after it.
class ConnectionStream final : public io::ByteStream {
 public:
  explicit ConnectionStream(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  /// The handlers know this object: they are called before it goes.
  // NOLINTNEXTLINE(bugprone-exception-escape): handlers that run here note their end, no more.
  ~ConnectionStream() override {
    connection_->close();
    connection_->poll();
  }
  ConnectionStream(const ConnectionStream&) = delete;
  ConnectionStream& operator=(const ConnectionStream&) = delete;

  [[nodiscard]] Result<size_t> read(std::span<std::byte> into) override;
  [[nodiscard]] Result<size_t> write(BytesView bytes) override;
  [[nodiscard]] int in() const override { return connection_->wire().socket().native_handle(); }
  [[nodiscard]] int out() const override { return in(); }
  [[nodiscard]] bool awaits_room(bool unsent) const override { return is_writing_ || unsent; }

 private:
  static constexpr size_t kPieceBytes = size_t{64} << 10U;
  void start_read();
  void start_write(BytesView bytes);
  [[nodiscard]] size_t take(std::span<std::byte> into);

  const std::unique_ptr<Connection> connection_;
  bool is_reading_ = false;
  bool is_writing_ = false;
  std::string sending_;
  error_code read_error_;
  error_code write_error_;
};

void ConnectionStream::start_read() {
  is_reading_ = true;
  connection_->wire().async_read_some(connection_->received().prepare(kPieceBytes),
                                      [this](error_code error, size_t bytes) {
                                        connection_->received().commit(bytes);
                                        read_error_ = error;
                                        is_reading_ = false;
                                      });
}

size_t ConnectionStream::take(std::span<std::byte> into) {
  const auto there = connection_->received().data();
  const size_t bytes = std::min(into.size(), there.size());
  std::memcpy(into.data(), there.data(), bytes);
  connection_->received().consume(bytes);
  return bytes;
}

Result<size_t> ConnectionStream::read(std::span<std::byte> into) {
  size_t taken = is_reading_ ? 0 : take(into);
  while (taken < into.size() && !read_error_) {
    if (!is_reading_) start_read();
    connection_->poll();
    if (is_reading_) break;
    taken += take(into.subspan(taken));
  }
  if (taken == 0 && read_error_) return connection_->failure("receive", read_error_);
  return taken;
}

void ConnectionStream::start_write(BytesView bytes) {
  is_writing_ = true;
  sending_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  asio::async_write(connection_->wire(), asio::buffer(sending_),
                    [this](error_code error, size_t /*bytes*/) {
                      write_error_ = error;
                      is_writing_ = false;
                    });
}

Result<size_t> ConnectionStream::write(BytesView bytes) {
  size_t taken = 0;
  if (is_writing_) connection_->poll();
  while (taken < bytes.size() && !is_writing_ && !write_error_) {
    const BytesView rest = bytes.subspan(taken);
    start_write(rest.first(std::min(rest.size(), kPieceBytes)));
    taken += sending_.size();
    connection_->poll();
  }
  if (write_error_) return connection_->failure("send", write_error_);
  return taken;
}

}  // namespace

/// A command may leave its input unread for minutes, and the server then takes none.
std::unique_ptr<io::ByteStream> make_stream(std::unique_ptr<Connection> connection) {
  set_patience(connection->wire().socket(), std::chrono::minutes(10));
  return std::make_unique<ConnectionStream>(std::move(connection));
}

}  // namespace corro::kube
