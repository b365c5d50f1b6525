// One thread runs one io_context: it accepts, reads a request's head of at most 8 KiB, answers, and
// closes. A connection that says nothing for five seconds is closed; more than 64 at once wait in
// the kernel.
#include "kube/operator/http_pages.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace corro::kube {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMostConnections = 64;
constexpr uint32_t kMostHeadBytes = 8192;
constexpr std::chrono::seconds kPatience{5};

Result<tcp::endpoint> parse_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  const Status refused(Code::kInvalidArgument,
                       fmt::format("{}: expected ADDRESS:PORT, as in 127.0.0.1:8080", address));
  if (colon == std::string::npos) return refused;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto [stop, wrong] = std::from_chars(address.data() + colon + 1, end, port);
  error_code error;
  const auto ip = asio::ip::make_address(host, error);
  if (error || wrong != std::errc() || stop != end) return refused;
  return tcp::endpoint(ip, port);
}

bool equals_secretly(std::string_view left, std::string_view right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

using Routes = std::map<std::string, HttpPages::Route>;

/// What all connections share; the server's.
struct Site {
  Routes routes;
  std::string token;
  bool is_loopback = false;
  size_t connections = 0;
  std::function<void()> on_close;
};

HttpPage page_of(const Site& site, const http::request<http::empty_body>& request) {
  const std::string target(request.target().substr(0, request.target().find('?')));
  const auto route = site.routes.find(target);
  if (route == site.routes.end()) {
    std::string pages;
    for (const auto& [path, each] : site.routes) pages += path + "\n";
    return {404, "not found; there are:\n" + pages};
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head)
    return {405, "GET only\n"};
  if (!route->second.is_protected || (site.is_loopback && site.token.empty()))
    return route->second.make();
  if (site.token.empty()) return {403, "served on loopback, or with --metrics-token\n"};
  const std::string_view shown = request[http::field::authorization];
  if (!equals_secretly(shown, "Bearer " + site.token)) return {401, "a bearer token is needed\n"};
  return route->second.make();
}

/// Lives until its answer is sent, or its time is over.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(tcp::socket socket, Site& site) : stream_(std::move(socket)), site_(site) {
    ++site_.connections;
    parser_.header_limit(kMostHeadBytes);
  }
  ~Visit() {
    --site_.connections;
    site_.on_close();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  void run() {
    stream_.expires_after(kPatience);
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t /*bytes*/) {
                              if (!error) self->answer();
                            });
  }

 private:
  void answer() {
    const auto& request = parser_.get();
    HttpPage page = page_of(site_, request);
    answer_ = http::response<http::string_body>(static_cast<http::status>(page.status), 11);
    answer_.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    answer_.set(http::field::cache_control, "no-store");
    if (page.status == 401) answer_.set(http::field::www_authenticate, "Bearer");
    answer_.keep_alive(false);
    answer_.content_length(page.text.size());
    if (request.method() != http::verb::head) answer_.body() = std::move(page.text);
    http::async_write(stream_, answer_,
                      [self = shared_from_this()](error_code /*error*/, size_t /*bytes*/) {
                        error_code ignored;
                        (void)self->stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
                      });
  }

  beast::tcp_stream stream_;
  Site& site_;
  beast::flat_buffer buffer_{kMostHeadBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> answer_;
};

}  // namespace

class HttpPages::Server {
 public:
  Server(Routes routes, std::string token) {
    site_.routes = std::move(routes);
    site_.token = std::move(token);
    site_.on_close = [this] { accept(); };
  }
  /// The context drops its last visits, which ask for nobody after them.
  ~Server() {
    site_.on_close = [] {};
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status listen(const std::string& address) {
    CORRO_ASSIGN(const tcp::endpoint endpoint, parse_address(address));
    site_.is_loopback = endpoint.address().is_loopback();
    error_code error;
    const auto failed = [&] {
      return Status(Code::kUnavailable, fmt::format("{}: {}", address, error.message()));
    };
    if ((void)acceptor_.open(endpoint.protocol(), error); error) return failed();
    (void)acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if ((void)acceptor_.bind(endpoint, error); error) return failed();
    if ((void)acceptor_.listen(asio::socket_base::max_listen_connections, error); error)
      return failed();
    return {};
  }

  void run() {
    accept();
    context_.run();
  }
  void stop() { context_.stop(); }

  [[nodiscard]] std::string address() const {
    const tcp::endpoint endpoint = acceptor_.local_endpoint();
    const std::string host = endpoint.address().to_string();
    return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                      : fmt::format("{}:{}", host, endpoint.port());
  }

 private:
  /// Unless it already accepts, or has enough visitors.
  void accept() {
    if (is_accepting_ || site_.connections >= kMostConnections) return;
    is_accepting_ = true;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      is_accepting_ = false;
      if (!error) std::make_shared<Visit>(std::move(socket), site_)->run();
      accept();
    });
  }

  Site site_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  bool is_accepting_ = false;
};

Result<std::unique_ptr<HttpPages>> HttpPages::listen(const HttpPagesOptions& options,
                                                     std::map<std::string, Route> routes) {
  auto server = std::make_unique<Server>(std::move(routes), options.token);
  CORRO_TRY(server->listen(options.address));
  return std::unique_ptr<HttpPages>(new HttpPages(std::move(server)));
}

HttpPages::HttpPages(std::unique_ptr<Server> server)
    : server_(std::move(server)), thread_([this] { server_->run(); }) {}

HttpPages::~HttpPages() {
  server_->stop();
  thread_.join();
}

std::string HttpPages::address() const { return server_->address(); }

}  // namespace corro::kube
