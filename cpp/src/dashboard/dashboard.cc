#include "dashboard/dashboard.h"

#include <fmt/format.h>

#include <utility>

#include "dashboard/board_text.h"
#include "dashboard/inspection_pages.h"
#include "dashboard/log_page.h"
#include "dashboard/page_routes.h"
#include "io/socket.h"

namespace corro::dashboard {
namespace {

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

Result<std::unique_ptr<Dashboard>> Dashboard::open(const Options& options, const SharedBoard& board,
                                                   std::unique_ptr<Inquirer> inquirer) {
  std::unique_ptr<Dashboard> made(new Dashboard(board, options.logs, std::move(inquirer)));
  auto routes = page_routes();
  Dashboard& one = *made;
  routes["/api/job"] = {[&one](const http::Query&) { return one.job_page(); }, true};
  routes["/api/logs"] = {[&one](const http::Query& query) { return logs_page(one.logs_, query); },
                         true};
  routes["/api/stacks"] = one.inspection_route(Inspected::kStacks);
  routes["/api/trace"] = one.inspection_route(Inspected::kTrace);
  routes["/api/trace.json"] = {
      [&one](const http::Query&) { return trace_file_page(one.inspection_); }, true};
  routes["/metrics"] = {[&one](const http::Query&) { return one.metrics_page(); }, true};
  CORRO_ASSIGN(made->pages_,
               http::Pages::listen(
                   {.address = options.address, .token = options.token, .for_browsers = true},
                   std::move(routes)));
  return made;
}

bool Dashboard::is_watched(Time now) {
  const Time asked = *asked_.lock();
  return asked != Time{} && now < asked + kAttention;
}

http::Page Dashboard::job_page() {
  *asked_.lock() = monotonic_now();
  return {.text = write_job(board_.copy(), wall_now()), .type = http::kJson};
}

http::Pages::Route Dashboard::inspection_route(Inspected what) {
  return {
      .make = [this, what](
                  const http::Query&) { return answer_page(inspection_, what, monotonic_now()); },
      .is_protected = true,
      .order =
          [this, what](const http::Query& query) {
            return ask_page(inspection_, what, query, monotonic_now(), wall_now());
          }};
}

http::Page Dashboard::metrics_page() { return {.text = write_metrics(board_.copy(), wall_now())}; }

std::string address_for_people(const std::string& address, const std::string& token,
                               const std::string& host) {
  const auto bound = io::SocketAddress::parse(address);
  const bool is_anywhere = bound.ok() && bound->is_wildcard();
  return fmt::format("http://{}/?token={}",
                     is_anywhere ? fmt::format("{}:{}", host, bound->port()) : address, token);
}

}  // namespace corro::dashboard
