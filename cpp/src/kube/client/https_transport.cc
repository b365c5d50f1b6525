// HTTP over connections that are kept (https_connection.h). One exchange, one connection, one
// thread: the caller's, which waits inside of Connection::run. A connection goes back to the idle
// ones only after a whole answer, and is looked at before it is used again: whatever can be read
// from it then (an end, an alert) makes it useless.
#include "kube/client/https_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "kube/client/https_connection.h"

namespace corro::kube {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Message = http::request<http::string_body>;
using Parser = http::response_parser<http::buffer_body>;

constexpr size_t kPieceBytes = size_t{64} << 10U;

/// Writes host and port as in a URL: "api.example:6443", "[::1]:6443".
std::string authority_of(const KubeCluster& cluster) {
  const bool is_v6 = cluster.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", cluster.host, cluster.port)
               : fmt::format("{}:{}", cluster.host, cluster.port);
}

Head head_of(const Parser& parser) {
  Head head;
  head.status = static_cast<int>(parser.get().result_int());
  for (const auto& field : parser.get()) {
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    head.headers[std::move(name)] = std::string(field.value());
  }
  return head;
}

Status read_body(Connection& connection, Parser& parser, const Head& head,
                 const ExchangeLimits& limits, const Receive& receive) {
  std::vector<char> piece(kPieceBytes);
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const Time end = std::min(limits.deadline, monotonic_now() + limits.silence);
    error_code error = connection.run(end, [&](auto handler) {
      http::async_read_some(connection.wire(), connection.received(), parser, handler);
    });
    const size_t bytes = piece.size() - parser.get().body().size;
    if (bytes > 0) CORRO_TRY(receive(head, {piece.data(), bytes}));
    if (error == http::error::need_buffer) continue;
    if (error) return connection.failure("receive", error);
  }
  return {};
}

/// Sends a request and receives the answer; closes the connection unless it can be used again.
Status exchange_over(Connection& connection, const Message& message, const ExchangeLimits& limits,
                     size_t most_head_bytes, const Receive& receive) {
  const Time end = std::min(limits.deadline, monotonic_now() + limits.answer);
  error_code error = connection.run(
      end, [&](auto handler) { http::async_write(connection.wire(), message, handler); });
  if (error) return connection.failure("send", error);
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(most_head_bytes));
  parser.body_limit(boost::none);
  error = connection.run(end, [&](auto handler) {
    http::async_read_header(connection.wire(), connection.received(), parser, handler);
  });
  if (error) return connection.failure("receive", error);
  const Head head = head_of(parser);
  CORRO_TRY(receive(head, {}));
  CORRO_TRY(read_body(connection, parser, head, limits, receive));
  if (!parser.keep_alive()) connection.close();
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
  [[nodiscard]] Exchanged upgrade(const Request& request, const ExchangeLimits& limits,
                                  const std::stop_token& stop, const Receive& receive,
                                  std::unique_ptr<io::ByteStream>& stream) override;

 private:
  struct Taken {
    Credential credential;
    std::unique_ptr<Connection> connection;
  };
  struct Idle {
    std::unique_ptr<Connection> connection;
    Time since;
  };
  struct State {
    std::shared_ptr<Identity> identity = {};  ///< Null without TLS.
    std::vector<Idle> idle = {};
  };
  /// The credential of now and a connection for it.
  [[nodiscard]] Result<Taken> take(const std::stop_token& stop, bool may_be_idle);
  /// The newest idle connection, or one that is not open.
  [[nodiscard]] Result<std::unique_ptr<Connection>> connection_for(const Credential& credential,
                                                                   bool may_be_idle);
  /// Connects if need be, sends the request and receives the answer.
  [[nodiscard]] Exchanged converse(Taken& taken, const Request& request,
                                   const ExchangeLimits& limits, const std::stop_token& stop,
                                   const Receive& receive);
  void give_back(std::unique_ptr<Connection> connection);
  [[nodiscard]] Message message_of(const Request& request, const Credential& credential) const;

  const KubeCluster cluster_;
  const std::shared_ptr<Credentials> credentials_;
  const HttpsOptions options_;
  const bool has_tls_;
  Guarded<State> state_;
};

Result<std::unique_ptr<Connection>> HttpsTransport::connection_for(const Credential& credential,
                                                                   bool may_be_idle) {
  std::vector<Idle> useless;  // Closed after the lock is released.
  auto state = state_.lock();
  const bool is_other = !state->identity ||
                        state->identity->certificate_pem != credential.certificate_pem ||
                        state->identity->key_pem != credential.key_pem;
  if (has_tls_ && is_other) {
    CORRO_ASSIGN(state->identity, make_identity(cluster_, credential));
    useless.swap(state->idle);
  }
  const Time now = monotonic_now();
  while (may_be_idle && !state->idle.empty()) {
    Idle newest = std::move(state->idle.back());
    state->idle.pop_back();
    const bool is_young = now - newest.since <= options_.most_idle;
    if (is_young && newest.connection->is_quiet()) return std::move(newest.connection);
    useless.push_back(std::move(newest));
  }
  return std::make_unique<Connection>(cluster_, state->identity);
}

void HttpsTransport::give_back(std::unique_ptr<Connection> connection) {
  auto state = state_.lock();
  const Time now = monotonic_now();
  std::erase_if(state->idle,
                [&](const Idle& idle) { return now - idle.since > options_.most_idle; });
  if (connection->identity() == state->identity) {
    state->idle.push_back({std::move(connection), now});
  }
}

Message HttpsTransport::message_of(const Request& request, const Credential& credential) const {
  Message message;
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
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = request.body;
  message.prepare_payload();
  return message;
}

Result<HttpsTransport::Taken> HttpsTransport::take(const std::stop_token& stop, bool may_be_idle) {
  CORRO_ASSIGN(Credential credential, credentials_->current(stop));
  CORRO_ASSIGN(auto connection, connection_for(credential, may_be_idle));
  return Taken{std::move(credential), std::move(connection)};
}

Exchanged HttpsTransport::converse(Taken& taken, const Request& request,
                                   const ExchangeLimits& limits, const std::stop_token& stop,
                                   const Receive& receive) {
  Connection& connection = *taken.connection;
  const Connection::Watched watched(connection, stop);
  Exchanged end;
  if (!connection.is_open()) {
    end.status = connection.connect(std::min(limits.deadline, monotonic_now() + limits.connect));
    if (!end.status.ok()) return end;
  }
  end.sent = true;
  int answered = 0;
  const auto note_status = [&](const Head& head, std::string_view piece) {
    answered = head.status;
    return receive(head, piece);
  };
  end.status = exchange_over(connection, message_of(request, taken.credential), limits,
                             options_.most_head_bytes, note_status);
  if (answered == 401) credentials_->refused(taken.credential);
  return end;
}

Exchanged HttpsTransport::exchange(const Request& request, const ExchangeLimits& limits,
                                   const std::stop_token& stop, const Receive& receive) {
  Result<Taken> taken = take(stop, true);
  if (!taken.ok()) return {taken.status(), false};
  Exchanged end = converse(*taken, request, limits, stop, receive);
  if (end.status.ok() && taken->connection->is_open()) give_back(std::move(taken->connection));
  return end;
}

Exchanged HttpsTransport::upgrade(const Request& request, const ExchangeLimits& limits,
                                  const std::stop_token& stop, const Receive& receive,
                                  std::unique_ptr<io::ByteStream>& stream) {
  Result<Taken> taken = take(stop, false);
  if (!taken.ok()) return {taken.status(), false};
  int answered = 0;
  const auto note_status = [&](const Head& head, std::string_view piece) {
    answered = head.status;
    return receive(head, piece);
  };
  Exchanged end = converse(*taken, request, limits, stop, note_status);
  const bool is_switched = answered == kSwitchingProtocols && taken->connection->is_open();
  if (end.status.ok() && is_switched) stream = make_stream(std::move(taken->connection));
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
