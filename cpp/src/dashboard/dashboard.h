// Dashboard: shows a job to browsers and to Prometheus, over plain HTTP.
//
//   CORRO_ASSIGN(auto dashboard, Dashboard::open({.address = "127.0.0.1:0", .token = token}));
//   dashboard->hear(happening);                                   // each event
//   if (dashboard->due() <= now) dashboard->show(picture, now);   // once a second, or sooner
//
//   /             the page (index.html), and the files that it needs
//   /api/job      the board as JSON
//   /api/logs     lines of ranks' logs
//   /metrics      the job for Prometheus
//
// The job never waits for whoever looks. Its loop leaves a picture here once a second; the server's
// thread copies it, and makes texts of the copy. All pages need the token.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/guarded.h"
#include "dashboard/board.h"
#include "dashboard/log_reader.h"
#include "http/pages.h"

namespace corro::dashboard {

/// "127.0.0.1:0", "[::1]:8080" or "localhost:8080" as an address. INVALID_ARGUMENT says what to give
/// the option.
[[nodiscard]] Result<std::string> parse_address(std::string_view option, const std::string& text);

/// The server's thread reads what the job's loop writes; everything public is the loop's.
class Dashboard {
 public:
  struct Options {
    std::string address;    ///< Of parse_address().
    std::string token;      ///< Letters and digits; not empty.
    std::string logs = {};  ///< The folder of rank-N.log; "": there are none.
  };
  /// UNAVAILABLE if the port cannot be had.
  [[nodiscard]] static Result<std::unique_ptr<Dashboard>> open(const Options& options);
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  void hear(Happening happening);
  void show(JobPicture picture, Time now);
  /// When the next picture is due: a second after the last one, but soon after something happened.
  [[nodiscard]] Time due() const;
  /// Somebody has asked for the job in the last seconds.
  [[nodiscard]] bool is_watched(Time now);

  /// With the port that was taken.
  [[nodiscard]] std::string address() const { return pages_->address(); }
  [[nodiscard]] UnixTime opened() const { return opened_; }

 private:
  struct Shared {
    Board board;
    Time asked{};  ///< When the job was asked for last; zero: never.
  };

  explicit Dashboard(const std::string& logs) : logs_(logs) {}
  http::Page job_page();
  http::Page metrics_page();

  const UnixTime opened_ = wall_now();
  Time shown_{};
  bool is_changed_ = true;
  Guarded<Shared> shared_;
  LogReader logs_;                      ///< The server's thread's alone.
  std::unique_ptr<http::Pages> pages_;  ///< Its thread uses what is above.
};

/// What to open: "http://127.0.0.1:8080/?token=...". `host`: the name of this machine, for a server
/// that listens everywhere.
[[nodiscard]] std::string address_for_people(const std::string& address, const std::string& token,
                                             const std::string& host);

}  // namespace corro::dashboard
