#include "dashboard/replay.h"

#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"
#include "dashboard/board_text.h"
#include "dashboard/log_page.h"
#include "dashboard/page_routes.h"

namespace corro::dashboard {

Result<std::unique_ptr<Replay>> Replay::open(const Dashboard::Options& options, History history) {
  std::unique_ptr<Replay> made(new Replay(options.logs, std::move(history)));
  Replay& one = *made;
  auto routes = page_routes();
  routes["/api/job"] = {[&one](const http::Query& query) {
                          return replay_page(one.history_, http::value_of(query, "at"));
                        },
                        true};
  routes["/api/logs"] = {[&one](const http::Query& query) { return logs_page(one.logs_, query); },
                         true};
  routes["/metrics"] = {[&one](const http::Query&) {
                          return http::Page{.text = write_metrics(one.end_, one.history_.end())};
                        },
                        true};
  CORRO_ASSIGN(made->pages_,
               http::Pages::listen(
                   {.address = options.address, .token = options.token, .for_browsers = true},
                   std::move(routes)));
  return made;
}

http::Page replay_page(const History& history, std::string_view at) {
  const auto wanted = time_of(nlohmann::ordered_json::parse(at, nullptr, false));
  if (!at.empty() && !wanted)
    return {.status = 400, .text = "at: give a time in seconds since 1970\n"};
  const UnixTime time = std::clamp(wanted.value_or(history.end()), history.begin(), history.end());
  auto json = json_of(history.at(time), time);
  json["history"] = {{"from", seconds_of(history.begin())},
                     {"to", seconds_of(history.end())},
                     {"note", history.note().empty() ? nlohmann::ordered_json()
                                                     : nlohmann::ordered_json(history.note())}};
  return {.text = text_of(json), .type = http::kJson};
}

}  // namespace corro::dashboard
