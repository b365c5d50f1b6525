#include "dashboard/dashboard.h"

#include <fmt/format.h>

#include <utility>

#include "dashboard/board_text.h"
#include "dashboard/log_page.h"
#include "dashboard/page_routes.h"
#include "io/socket.h"

namespace corro::dashboard {
namespace {

constexpr Duration kUsualPause = std::chrono::seconds(1);
constexpr Duration kShortestPause = std::chrono::milliseconds(200);
constexpr Duration kAttention = std::chrono::seconds(3);
constexpr std::string_view kLocalHost = "localhost:";

}  // namespace

Result<std::string> parse_address(std::string_view option, const std::string& text) {
  const std::string address =
      text.starts_with(kLocalHost) ? "127.0.0.1:" + text.substr(kLocalHost.size()) : text;
  if (io::SocketAddress::parse(address).ok()) return address;
  return Status(Code::kInvalidArgument,
                fmt::format("{} {}: give an address of this machine and a port, such as "
                            "127.0.0.1:8080, or 127.0.0.1:0 for any port",
                            option, text.empty() ? "''" : text));
}

Result<std::unique_ptr<Dashboard>> Dashboard::open(const Options& options) {
  std::unique_ptr<Dashboard> made(new Dashboard(options.logs));
  auto routes = page_routes();
  Dashboard& one = *made;
  routes["/api/job"] = {[&one](const http::Query&) { return one.job_page(); }, true};
  routes["/api/logs"] = {[&one](const http::Query& query) { return logs_page(one.logs_, query); },
                         true};
  routes["/metrics"] = {[&one](const http::Query&) { return one.metrics_page(); }, true};
  CORRO_ASSIGN(made->pages_,
               http::Pages::listen(
                   {.address = options.address, .token = options.token, .for_browsers = true},
                   std::move(routes)));
  return made;
}

void Dashboard::hear(Happening happening) {
  is_changed_ = is_changed_ || happening.kind != "step";
  shared_.lock()->board.hear(std::move(happening));
}

void Dashboard::show(JobPicture picture, Time now) {
  shown_ = now;
  is_changed_ = false;
  shared_.lock()->board.show(std::move(picture), wall_now());
}

Time Dashboard::due() const { return shown_ + (is_changed_ ? kShortestPause : kUsualPause); }

bool Dashboard::is_watched(Time now) {
  const Time asked = shared_.lock()->asked;
  return asked != Time{} && now < asked + kAttention;
}

http::Page Dashboard::job_page() {
  Board board;
  {
    auto held = shared_.lock();
    held->asked = monotonic_now();
    board = held->board;
  }
  return {.text = write_job(board, wall_now()), .type = http::kJson};
}

http::Page Dashboard::metrics_page() {
  const Board board = shared_.lock()->board;
  return {.text = write_metrics(board)};
}

std::string address_for_people(const std::string& address, const std::string& token,
                               const std::string& host) {
  const auto bound = io::SocketAddress::parse(address);
  const bool is_anywhere = bound.ok() && bound->is_wildcard();
  return fmt::format("http://{}/?token={}",
                     is_anywhere ? fmt::format("{}:{}", host, bound->port()) : address, token);
}

}  // namespace corro::dashboard
