#include "kube/client/loopback_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <memory>

#include <fmt/format.h>

#include "base/check.h"
#include "base/stop.h"

namespace corro::kube {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

std::string text_of_bio(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(bytes)};
}
Bio bio_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}
Certificate certificate_of(const std::string& pem) {
  return {PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr), &X509_free};
}
Key key_of(const std::string& pem) {
  return {PEM_read_bio_PrivateKey(bio_of(pem).get(), nullptr, nullptr, nullptr), &EVP_PKEY_free};
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  CORRO_CHECK(extension != nullptr, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::string common_name_of(SSL* ssl) {
  const Certificate shown(SSL_get1_peer_certificate(ssl), &X509_free);
  if (!shown) return "";
  std::string name(100, '\0');
  const int bytes = X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName,
                                              name.data(), static_cast<int>(name.size()));
  name.resize(static_cast<size_t>(std::max(bytes, 0)));
  return name;
}

/// Reads a head and the body that it announces; "" at the end.
std::string read_request(SSL* ssl, std::string& rest) {
  while (true) {
    const size_t end = rest.find("\r\n\r\n");
    if (end != std::string::npos) {
      const size_t field = rest.find("Content-Length: ");
      const size_t body = field < end ? std::stoul(rest.substr(field + 16)) : 0;
      const size_t whole = end + 4 + body;
      if (rest.size() >= whole) {
        std::string request = rest.substr(0, whole);
        rest.erase(0, whole);
        return request;
      }
    }
    std::string block(4096, '\0');
    const int got = SSL_read(ssl, block.data(), static_cast<int>(block.size()));
    if (got <= 0) return "";
    rest.append(block, 0, static_cast<size_t>(got));
  }
}

}  // namespace

PemPair make_certificate(const std::string& common_name, const std::string& alternative_name,
                         const PemPair* issuer) {
  const Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const Certificate made(X509_new(), &X509_free);
  X509* certificate = made.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  const Certificate authority =
      issuer == nullptr ? Certificate(nullptr, &X509_free) : certificate_of(issuer->certificate);
  const Key signer = issuer == nullptr ? Key(nullptr, &EVP_PKEY_free) : key_of(issuer->key);
  X509* by = issuer == nullptr ? certificate : authority.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(by));
  add_extension(certificate, by, NID_basic_constraints,
                issuer == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!alternative_name.empty()) {
    add_extension(certificate, by, NID_subject_alt_name, alternative_name);
  }
  X509_sign(certificate, issuer == nullptr ? key.get() : signer.get(), EVP_sha256());
  const Bio first(BIO_new(BIO_s_mem()), &BIO_free);
  const Bio second(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(first.get(), certificate);
  PEM_write_bio_PrivateKey(second.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {text_of_bio(first.get()), text_of_bio(second.get())};
}

std::string LoopbackPeer::read(size_t bytes) {
  while (rest_.size() < bytes) {
    std::string block(size_t{64} << 10U, '\0');
    const int got = SSL_read(ssl_, block.data(), static_cast<int>(block.size()));
    if (got <= 0) break;
    rest_.append(block, 0, static_cast<size_t>(got));
  }
  std::string taken = rest_.substr(0, bytes);
  rest_.erase(0, taken.size());
  return taken;
}

void LoopbackPeer::write(const std::string& bytes) {
  SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
}

LoopbackServer::LoopbackServer(const PemPair& identity, Reply reply,
                               const std::string& client_authority)
    : context_(SSL_CTX_new(TLS_server_method())), reply_(std::move(reply)) {
  SSL_CTX_use_certificate(context_, certificate_of(identity.certificate).get());
  SSL_CTX_use_PrivateKey(context_, key_of(identity.key).get());
  if (!client_authority.empty()) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), certificate_of(client_authority).get());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  CORRO_CHECK(::bind(listener_.get(), generic, bytes) == 0 && ::listen(listener_.get(), 16) == 0);
  ::getsockname(listener_.get(), generic, &bytes);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { accept(); });
}

LoopbackServer::~LoopbackServer() {
  stopping_.request_stop();
  ::shutdown(listener_.get(), SHUT_RDWR);
  accepting_.join();
  for (const int fd : *open_.lock()) ::shutdown(fd, SHUT_RDWR);
  for (std::thread& thread : serving_) thread.join();
  for (const int fd : *open_.lock()) ::close(fd);
  SSL_CTX_free(context_);
}

void LoopbackServer::accept() {
  for (int number = 0;; ++number) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    open_.lock()->push_back(fd);
    serving_.emplace_back([this, fd, number] { serve(fd, number); });
  }
}

void LoopbackServer::serve(int fd, int number) {
  SSL* ssl = SSL_new(context_);
  SSL_set_fd(ssl, fd);
  if (SSL_accept(ssl) == 1) answer(ssl, number);
  ::shutdown(fd, SHUT_RDWR);
  SSL_free(ssl);
}

void LoopbackServer::answer(ssl_st* ssl, int number) {
  std::string rest;
  while (true) {
    LoopbackRequest request{read_request(ssl, rest), common_name_of(ssl), "", number};
    const char* server_name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (server_name != nullptr) request.server_name = server_name;
    if (request.text.empty()) return;
    const LoopbackReply reply = reply_(request);
    ++*requests_.lock();
    requests_.notify_all();
    if (!reply.text.empty()) {
      SSL_write(ssl, reply.text.data(), static_cast<int>(reply.text.size()));
    }
    if (reply.talk) {
      LoopbackPeer peer(ssl, std::move(rest));
      return reply.talk(peer);
    }
    if (reply.hangs) (void)wait_for_stop(stop_, std::chrono::hours(1));
    if (reply.hangs || reply.closes) return;
  }
}

void LoopbackServer::wait_for_requests(size_t count) {
  auto requests = requests_.lock();
  while (*requests < count) requests.wait_for(std::chrono::milliseconds(10));
}

std::string http_reply(int status, const std::string& body, const std::string& headers) {
  return fmt::format(
      "HTTP/1.1 {} x\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", status,
      headers, body.size(), body);
}

}  // namespace corro::kube
