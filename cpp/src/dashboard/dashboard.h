// Dashboard: shows a job to browsers and to Prometheus, over plain HTTP.
//
//   SharedBoard board;   // what the job's loop writes
//   CORRO_ASSIGN(auto dashboard, Dashboard::open({.address = "127.0.0.1:0", .token = token}, board));
//
//   /             the page (index.html), and the files that it needs
//   /api/job      the board as JSON
//   /api/logs     lines of ranks' logs
//   /api/stacks   what ranks do in their program: a POST asks them, a GET has the answer
//   /api/trace    the same of what they did in their last steps; the file is /api/trace.json
//   /metrics      the job for Prometheus
//
// The job never waits for whoever looks. Its loop leaves a picture on the board once a second; the
// server's thread copies it, and makes texts of the copy. All pages need the token.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/guarded.h"
#include "dashboard/inspection.h"
#include "dashboard/log_reader.h"
#include "dashboard/shared_board.h"
#include "http/pages.h"

namespace corro::dashboard {

/// "127.0.0.1:0", "[::1]:8080" or "localhost:8080" as an address. INVALID_ARGUMENT says what to give
/// the option.
[[nodiscard]] Result<std::string> parse_address(std::string_view option, const std::string& text);

/// Has a thread, the server's; everything public is the job's loop's.
class Dashboard {
 public:
  struct Options {
    std::string address;    ///< Of parse_address().
    std::string token;      ///< Letters and digits; not empty.
    std::string logs = {};  ///< The folder of rank-N.log; "": there are none.
  };
  /// UNAVAILABLE if the port cannot be had. The board outlives it.
  /// `inquirer`: is used by the server's thread; null: ranks cannot be asked.
  [[nodiscard]] static Result<std::unique_ptr<Dashboard>> open(const Options& options,
                                                               const SharedBoard& board,
                                                               std::unique_ptr<Inquirer> inquirer);
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  /// Somebody has asked for the job in the last seconds.
  [[nodiscard]] bool is_watched(Time now);

  /// With the port that was taken.
  [[nodiscard]] std::string address() const { return pages_->address(); }

 private:
  Dashboard(const SharedBoard& board, const std::string& logs, std::unique_ptr<Inquirer> inquirer)
      : board_(board), logs_(logs), inspection_(std::move(inquirer)) {}
  http::Pages::Route inspection_route(Inspected what);
  http::Page job_page();
  http::Page metrics_page();

  const SharedBoard& board_;
  Guarded<Time> asked_;  ///< When the job was asked for last; zero: never.
  LogReader logs_;       ///< The server's thread's alone, as the next one.
  Inspection inspection_;
  std::unique_ptr<http::Pages> pages_;  ///< Its thread uses what is above.
};

/// What to open: "http://127.0.0.1:8080/?token=...". `host`: the name of this machine, for a server
/// that listens everywhere.
[[nodiscard]] std::string address_for_people(const std::string& address, const std::string& token,
                                             const std::string& host);

}  // namespace corro::dashboard
