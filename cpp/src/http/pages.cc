// One thread runs one io_context: it accepts, reads a request's head of at most 8 KiB, answers, and
// closes. A connection that says nothing for five seconds is closed; more than 64 at once wait in
// the kernel.
//
// A browser is told to run nothing but the scripts that are served here, to keep nothing, and to
// tell no other site of the address. So what a job says of itself can do no harm in a page, and the
// token in the first address is in no history of another site.
#include "http/pages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "http/access.h"
#include "io/socket.h"

namespace corro::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace protocol = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMostConnections = 64;
constexpr uint32_t kMostHeadBytes = 8192;
constexpr std::chrono::seconds kPatience{5};
constexpr size_t kLeastBytesASecond = size_t{64} << 10U;  ///< Of whom an answer is sent to.
constexpr unsigned kHttp11 = 11;
constexpr const char* kPolicy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'";

using Request = protocol::request<protocol::empty_body>;
using Routes = std::map<std::string, Pages::Route>;

/// What all connections share; the server's.
struct Site {
  Routes routes;
  AccessRules rules;
  size_t connections = 0;
  std::function<void()> on_close;
};

/// What a request asks for: the path, and what is behind the "?".
struct Target {
  std::string path;
  std::string_view query;
};

Target target_of(const Request& request) {
  const std::string_view whole = request.target();
  const size_t end = std::min(whole.find('?'), whole.size());
  return {.path = std::string(whole.substr(0, end)),
          .query = whole.substr(std::min(end + 1, whole.size()))};
}

std::string_view field_of(const Request& request, protocol::field name) { return request[name]; }

/// A page, and what its head has beside what every head has.
struct Answer {
  Page page;
  std::string location = {};  ///< Where else it is; "": here.
  std::string cookie = {};    ///< To be kept; "": none.
};

/// The page once more, without the token: nobody copies it out of the address then, and it is in
/// no history.
Answer enter(const AccessRules& rules, const std::string& path) {
  return {
      .page = {303, "open " + path + "\n"},
      .location = path,
      .cookie = fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", rules.cookie, rules.token)};
}

std::string list_of(const Routes& routes) {
  std::string pages;
  for (const auto& [path, each] : routes) pages += path + "\n";
  return pages;
}

Page refuse(Access access) {
  switch (access) {
    case Access::kClosed:
      return {403, "served on loopback alone, since there is no token\n"};
    case Access::kForbidden:
      return {403, "not for everybody: open the whole address, with its token\n"};
    case Access::kForeign:
      return {403, "not from a page of another site\n"};
    default:
      return {401, "a bearer token is needed\n"};
  }
}

bool is_order(const Request& request) { return request.method() == protocol::verb::post; }

bool is_taken(const Pages::Route& route, const Request& request) {
  using protocol::verb;
  if (is_order(request)) return route.order != nullptr;
  return request.method() == verb::get || request.method() == verb::head;
}

Access access_of(const Site& site, const Request& request, std::string_view query) {
  using protocol::field;
  return decide_access(site.rules, {.host = field_of(request, field::host),
                                    .query = query,
                                    .authorization = field_of(request, field::authorization),
                                    .cookies = field_of(request, field::cookie),
                                    .origin = field_of(request, field::origin),
                                    .is_post = is_order(request)});
}

/// An answer with its head, but for what every answer has.
Answer answer_of(const Site& site, const Request& request) {
  const Target target = target_of(request);
  if (!is_own_name(site.rules, field_of(request, protocol::field::host)))
    return {.page = {421, "not served under this name\n"}};
  const auto route = site.routes.find(target.path);
  if (route == site.routes.end())
    return {.page = {404, "not found; there are:\n" + list_of(site.routes)}};
  if (!is_taken(route->second, request))
    return {.page = {405, route->second.order ? "GET and POST only\n" : "GET only\n"}};
  const auto make = [&] {
    const auto& maker = is_order(request) ? route->second.order : route->second.make;
    return Answer{.page = maker(parse_query(target.query))};
  };
  if (!route->second.is_protected && !is_order(request)) return make();
  const Access access = access_of(site, request, target.query);
  if (access == Access::kGranted) return make();
  if (access == Access::kEntered) return enter(site.rules, target.path);
  return {.page = refuse(access)};
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
    protocol::async_read_header(stream_, buffer_, parser_,
                                [self = shared_from_this()](error_code error, size_t /*bytes*/) {
                                  if (!error) self->answer();
                                });
  }

 private:
  void answer() {
    const auto& request = parser_.get();
    Answer answer = answer_of(site_, request);
    Page& page = answer.page;
    answer_ = protocol::response<protocol::string_body>(static_cast<protocol::status>(page.status),
                                                        kHttp11);
    set_head(answer);
    answer_.content_length(page.text.size());
    if (request.method() != protocol::verb::head) answer_.body() = std::move(page.text);
    stream_.expires_after(kPatience +
                          answer_.body().size() / kLeastBytesASecond * std::chrono::seconds(1));
    protocol::async_write(
        stream_, answer_, [self = shared_from_this()](error_code /*error*/, size_t /*bytes*/) {
          error_code ignored;
          (void)self->stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
        });
  }

  void set_head(const Answer& answer) {
    using protocol::field;
    answer_.set(field::content_type, answer.page.type);
    answer_.set(field::cache_control, "no-store");
    answer_.set("Content-Security-Policy", kPolicy);
    answer_.set("X-Content-Type-Options", "nosniff");
    answer_.set("Referrer-Policy", "no-referrer");
    if (answer.page.status == 401) answer_.set(field::www_authenticate, "Bearer");
    if (!answer.location.empty()) answer_.set(field::location, answer.location);
    if (!answer.cookie.empty()) answer_.set(field::set_cookie, answer.cookie);
    answer_.keep_alive(false);
  }

  beast::tcp_stream stream_;
  Site& site_;
  beast::flat_buffer buffer_{kMostHeadBytes};
  protocol::request_parser<protocol::empty_body> parser_;
  protocol::response<protocol::string_body> answer_;
};

}  // namespace

class Pages::Server {
 public:
  Server(Routes routes, const PagesOptions& options) {
    site_.routes = std::move(routes);
    site_.rules.token = options.token;
    site_.rules.for_browsers = options.for_browsers;
    site_.on_close = [this] { wait_for_visit(); };
  }
  /// The context drops its last visits, which ask for nobody after them.
  ~Server() {
    site_.on_close = [] {};
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status listen(const std::string& text) {
    CORRO_ASSIGN(const io::SocketAddress wanted, io::SocketAddress::parse(text));
    auto listener = io::listen_tcp(wanted);
    if (!listener.ok()) return {Code::kUnavailable, listener.status().message()};
    CORRO_ASSIGN(address_, io::local_address(listener->get()));
    site_.rules.is_loopback = address_->is_loopback();
    site_.rules.cookie = fmt::format("corro-{}", address_->port());
    error_code error;
    (void)acceptor_.assign(protocol_of(*address_), listener->get(), error);
    if (error) return {Code::kInternal, fmt::format("{}: {}", text, error.message())};
    (void)listener->release();  // The acceptor's now.
    return {};
  }

  void run() {
    wait_for_visit();
    context_.run();
  }
  void stop() { context_.stop(); }

  [[nodiscard]] std::string address() const { return address_->to_string(); }

 private:
  static tcp protocol_of(const io::SocketAddress& address) {
    return address.get()->sa_family == AF_INET6 ? tcp::v6() : tcp::v4();
  }

  /// Unless it already waits, or has enough visitors.
  void wait_for_visit() {
    if (is_waiting_ || site_.connections >= kMostConnections) return;
    is_waiting_ = true;
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](error_code error) {
      is_waiting_ = false;
      if (!error) accept();
      wait_for_visit();
    });
  }

  /// Asio's own accept would leave the connection open in children.
  void accept() {
    auto accepted = io::accept_connection(acceptor_.native_handle());
    if (!accepted.ok() || !accepted->valid()) return;
    tcp::socket socket(context_);
    error_code error;
    (void)socket.assign(protocol_of(*address_), accepted->get(), error);
    if (error) return;
    (void)accepted->release();
    std::make_shared<Visit>(std::move(socket), site_)->run();
  }

  Site site_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  std::optional<io::SocketAddress> address_;  ///< None: it does not listen yet.
  bool is_waiting_ = false;
};

Result<std::unique_ptr<Pages>> Pages::listen(const PagesOptions& options,
                                             std::map<std::string, Route> routes) {
  auto server = std::make_unique<Server>(std::move(routes), options);
  CORRO_TRY(server->listen(options.address));
  return std::unique_ptr<Pages>(new Pages(std::move(server)));
}

Pages::Pages(std::unique_ptr<Server> server)
    : server_(std::move(server)), thread_([this] { server_->run(); }) {}

Pages::~Pages() {
  server_->stop();
  thread_.join();
}

std::string Pages::address() const { return server_->address(); }

}  // namespace corro::http
