// The only file that knows OpenSSL's TLS. An external PSK is a session that both sides make up
// (SSL_SESSION with the key as its master key): the client offers it by its identity, the server
// finds it by that. There is no certificate on either side, so a handshake that does not end in it
// fails; the client asks for that once more (SSL_session_reused).
#include "secure/tls_stream.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cerrno>

namespace corro::secure {
namespace {

/// The one cipher suite, and so one hash: an external PSK belongs to a hash (RFC 8446, 4.2.11).
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherId = {0x13, 0x01};

/// What OpenSSL has said last; forgets it.
std::string take_errors() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "no reason" : reason;
}

Status refused_by_openssl(std::string_view what) {
  return {Code::kInternal, fmt::format("TLS: {}: {}", what, take_errors())};
}

/// The session that both sides make up; null if OpenSSL refuses.
SSL_SESSION* make_session(SSL* ssl, const Key& key) {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherId.data());
  const bool made =
      session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

}  // namespace

struct Tls::Side {
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* made) const { SSL_CTX_free(made); }
  };
  using Context = std::unique_ptr<SSL_CTX, Free>;

  std::string identity;  ///< Of a client.
  Key key{};
  FindKey find_key;  ///< Of a server only.
  Context context;
};

namespace {

class Connection final : public TlsStream {
 public:
  Connection(std::shared_ptr<const Tls::Side> side, io::Fd socket,
             std::unique_ptr<SSL, Tls::Side::Free> ssl)
      : side_(std::move(side)), socket_(std::move(socket)), ssl_(std::move(ssl)) {
    SSL_set_app_data(ssl_.get(), this);
  }

  Result<size_t> read(std::span<std::byte> into) override;
  Result<size_t> write(BytesView bytes) override;
  [[nodiscard]] int in() const override { return socket_.get(); }
  [[nodiscard]] int out() const override { return socket_.get(); }
  [[nodiscard]] bool awaits_room(bool unsent) const override {
    return SSL_want_write(ssl_.get()) || (unsent && is_proved());
  }
  [[nodiscard]] const std::optional<PodIdentity>& peer() const override {
    return is_proved() ? claimed_ : nobody_;
  }
  [[nodiscard]] bool is_proved() const override { return proved_; }

  // OpenSSL's callbacks.
  static int use_session(SSL* ssl, const EVP_MD* hash, const unsigned char** id, size_t* length,
                         SSL_SESSION** session);
  static int find_session(SSL* ssl, const unsigned char* id, size_t length, SSL_SESSION** session);

 private:
  /// To be called after each that may go on with the handshake.
  void look_whether_proved() {
    proved_ =
        proved_ || (SSL_is_init_finished(ssl_.get()) == 1 && SSL_session_reused(ssl_.get()) == 1);
  }
  /// What a call that has returned `result` says; 0 bytes if it may go on later.
  [[nodiscard]] Result<size_t> failure_of(int result);
  [[nodiscard]] Status why_unproved() const;

  const std::shared_ptr<const Tls::Side> side_;  ///< Shared with the Tls that has opened it.
  io::Fd socket_;
  std::unique_ptr<SSL, Tls::Side::Free> ssl_;
  bool proved_ = false;
  std::optional<PodIdentity> claimed_;
  const std::optional<PodIdentity> nobody_;
  Status refusal_;  ///< Of the finder.
  Status broken_;   ///< Nothing works any more.
};

int Connection::use_session(SSL* ssl, const EVP_MD* hash, const unsigned char** id, size_t* length,
                            SSL_SESSION** session) {
  const auto* self = static_cast<const Connection*>(SSL_get_app_data(ssl));
  *id = nullptr, *length = 0, *session = nullptr;
  if (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256) return 1;
  *session = make_session(ssl, self->side_->key);
  *id = reinterpret_cast<const unsigned char*>(self->side_->identity.data());
  *length = self->side_->identity.size();
  return *session == nullptr ? 0 : 1;
}

int Connection::find_session(SSL* ssl, const unsigned char* id, size_t length,
                             SSL_SESSION** session) {
  auto* self = static_cast<Connection*>(SSL_get_app_data(ssl));
  *session = nullptr;
  auto identity = decode_identity({reinterpret_cast<const char*>(id), length});
  const auto key = identity.ok() ? self->side_->find_key(*identity) : identity.status();
  if (!key.ok()) {
    self->refusal_ = key.status();
    return 0;
  }
  self->claimed_ = std::move(*identity);
  *session = make_session(ssl, *key);
  return *session == nullptr ? 0 : 1;
}

Result<size_t> Connection::read(std::span<std::byte> into) {
  size_t all = 0;
  while (all < into.size()) {
    CORRO_TRY(broken_);
    ERR_clear_error();
    size_t count = 0;
    const int result = SSL_read_ex(ssl_.get(), into.data() + all, into.size() - all, &count);
    all += count;
    look_whether_proved();
    if (result == 1 && is_proved()) continue;
    const auto failure = failure_of(result);
    if (!failure.ok() && all == 0) return failure;
    break;  // What came before a failure is taken first; it is kept for the next call.
  }
  return all;
}

Result<size_t> Connection::write(BytesView bytes) {
  CORRO_TRY(broken_);
  ERR_clear_error();
  size_t count = 0;
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &count);
  look_whether_proved();
  return result == 1 && is_proved() ? Result<size_t>(count) : failure_of(result);
}

Status Connection::why_unproved() const {
  if (!refusal_.ok()) return {Code::kUnauthenticated, refusal_.message()};
  if (claimed_) {
    return {Code::kUnauthenticated,
            fmt::format("{} has not the key of {} ({})", side_->find_key ? "the other side" : "it",
                        claimed_->member, take_errors())};
  }
  return {Code::kUnauthenticated, fmt::format("the keys do not fit ({})", take_errors())};
}

Result<size_t> Connection::failure_of(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  if (kind == SSL_ERROR_NONE) return broken_ = why_unproved();  // A handshake without the keys.
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return size_t{0};
  const int error = errno;
  const bool is_cut = kind == SSL_ERROR_ZERO_RETURN || kind == SSL_ERROR_SYSCALL ||
                      ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  if (is_cut) {
    const bool says = kind == SSL_ERROR_SYSCALL && error != 0;
    broken_ = says ? Status(Code::kUnavailable, status_from_errno("connection", error).message())
                   : Status(Code::kUnavailable, "the other side has gone");
  } else if (!is_proved()) {
    broken_ = why_unproved();
  } else {
    broken_ = Status(Code::kDataLoss, fmt::format("TLS: {}", take_errors()));
  }
  return broken_;
}

Status configure(SSL_CTX* context) {
  const bool done = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, kCipher) == 1 &&
                    SSL_CTX_set_num_tickets(context, 0) == 1 &&
                    SSL_CTX_set_max_early_data(context, 0) == 1;
  if (!done) return refused_by_openssl("version 1.3 with " + std::string(kCipher));
  // With a certificate on the other side it is nobody of ours: none is trusted.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  return {};
}

}  // namespace

Result<Tls> Tls::client(const PodIdentity& identity, const Key& key) {
  auto side =
      std::make_shared<Side>(Side{.identity = encode_identity(identity),
                                  .key = key,
                                  .find_key = {},
                                  .context = Side::Context(SSL_CTX_new(TLS_client_method()))});
  if (!side->context) return refused_by_openssl("client");
  CORRO_TRY(configure(side->context.get()));
  SSL_CTX_set_psk_use_session_callback(side->context.get(), &Connection::use_session);
  return Tls(std::move(side));
}

Result<Tls> Tls::server(FindKey find_key) {
  auto side =
      std::make_shared<Side>(Side{.identity = {},
                                  .key = {},
                                  .find_key = std::move(find_key),
                                  .context = Side::Context(SSL_CTX_new(TLS_server_method()))});
  if (!side->context) return refused_by_openssl("server");
  CORRO_TRY(configure(side->context.get()));
  constexpr std::array<unsigned char, 5> kContext = {'c', 'o', 'r', 'r', 'o'};
  (void)SSL_CTX_set_session_id_context(side->context.get(), kContext.data(), kContext.size());
  SSL_CTX_set_psk_find_session_callback(side->context.get(), &Connection::find_session);
  return Tls(std::move(side));
}

Result<std::unique_ptr<TlsStream>> Tls::open(io::Fd socket) const {
  std::unique_ptr<SSL, Tls::Side::Free> ssl(SSL_new(side_->context.get()));
  if (!ssl || SSL_set_fd(ssl.get(), socket.get()) != 1) return refused_by_openssl("connection");
  if (side_->find_key) {
    SSL_set_accept_state(ssl.get());
  } else {
    SSL_set_connect_state(ssl.get());
  }
  return std::unique_ptr<TlsStream>(
      std::make_unique<Connection>(side_, std::move(socket), std::move(ssl)));
}

}  // namespace corro::secure
