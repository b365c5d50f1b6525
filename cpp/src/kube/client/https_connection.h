// Connection: one TCP connection to an API server, with TLS or without, for one thread at a time.
// This header shows Boost.Asio to https_connection.cc and https_transport.cc, and to no other file.
//
//   CORRO_ASSIGN(const auto identity, make_identity(cluster, credential));
//   Connection connection(cluster, identity);
//   const Connection::Watched watched(connection, stop);
//   CORRO_TRY(connection.connect(end));
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "io/byte_stream.h"
#include "kube/client/credentials.h"
#include "kube/client/kubeconfig.h"

namespace corro::kube {

/// Who this side is: a TLS context with the client certificate in it.
struct Identity {
  std::string certificate_pem;
  std::string key_pem;
  boost::asio::ssl::context context;
};

/// INVALID_ARGUMENT for authorities that are no PEM, UNAUTHENTICATED for such a certificate or key.
[[nodiscard]] Result<std::shared_ptr<Identity>> make_identity(const KubeCluster& cluster,
                                                              const Credential& credential);

/// A socket that bytes go through as they are, or through TLS: a stream for Beast.
class Wire {
 public:
  // NOLINTNEXTLINE(readability-identifier-naming): Asio's own name.
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  /// Without an identity there is no TLS.
  Wire(boost::asio::io_context& context, Identity* identity) : socket_(context) {
    if (identity != nullptr) tls_.emplace(socket_, identity->context);
  }
  [[nodiscard]] boost::asio::ip::tcp::socket& socket() { return socket_; }
  /// Null without TLS.
  [[nodiscard]] boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>* tls() {
    return tls_ ? &*tls_ : nullptr;
  }

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
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
};

/// Confined to the thread that holds it. `cluster` outlives it.
class Connection {
 public:
  using Error = boost::system::error_code;

  Connection(const KubeCluster& cluster, std::shared_ptr<Identity> identity)
      : cluster_(cluster), identity_(std::move(identity)), wire_(context_, identity_.get()) {}

  [[nodiscard]] const std::shared_ptr<Identity>& identity() const { return identity_; }
  [[nodiscard]] bool is_open() const { return is_open_; }
  /// False if the server has ended it, or said something that nobody asked for.
  [[nodiscard]] bool is_quiet();
  /// Everything below ends at once when `stop` is requested, until this object is destroyed.
  class Watched;

  [[nodiscard]] Status connect(Time end);
  /// Starts an operation and runs until it has ended. `start` is given the handler to call.
  template <typename Start>
  Error run(Time end, Start&& start);
  /// Runs what can be run of operations that were started, without waiting.
  void poll();
  /// Translates an operation's failure.
  [[nodiscard]] Status failure(std::string_view doing, Error error) const;
  void close();

  [[nodiscard]] Wire& wire() { return wire_; }
  /// Bytes that were received and not yet parsed.
  [[nodiscard]] boost::beast::flat_buffer& received() { return received_; }

 private:
  [[nodiscard]] Status connect_socket(Time end);
  [[nodiscard]] Status shake_hands(Time end);
  /// Runs until `is_done`.
  void run_until(const bool& is_done, Time end);

  const KubeCluster& cluster_;
  const std::shared_ptr<Identity> identity_;
  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::resolver resolver_{context_};
  Wire wire_;
  boost::beast::flat_buffer received_;
  bool is_open_ = false;
  bool is_stopped_ = false;
  bool is_late_ = false;
};

class Connection::Watched {
 public:
  Watched(Connection& connection, const std::stop_token& stop);
  /// What a stop posted in the last moment is done now, not in the next exchange.
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  using Waker = std::stop_callback<std::function<void()>>;
  Connection& connection_;
  std::unique_ptr<Waker> waker_;
};

/// The connection as bytes, for a protocol other than HTTP. The bytes of received() come first.
[[nodiscard]] std::unique_ptr<io::ByteStream> make_stream(std::unique_ptr<Connection> connection);

template <typename Start>
Connection::Error Connection::run(Time end, Start&& start) {
  bool is_done = false;
  Error outcome;
  start([&is_done, &outcome](Error error, const auto&... /*result*/) {
    outcome = error;
    is_done = true;
  });
  run_until(is_done, end);
  return is_stopped_ || is_late_ ? Error(boost::asio::error::operation_aborted) : outcome;
}

}  // namespace corro::kube
