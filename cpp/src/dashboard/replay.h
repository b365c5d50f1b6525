// Replay: shows a job that is over to browsers, as Dashboard does one that runs.
//
//   /api/job?at=TIME   the job as it was then, in seconds since 1970; without it, as it ended
//   /api/logs          lines of its ranks' logs, where those files are
//   /metrics           of its end
#pragma once

#include <memory>
#include <string>

#include "dashboard/dashboard.h"
#include "dashboard/history.h"

namespace corro::dashboard {

/// Serves from a thread of its own until it is destroyed.
class Replay {
 public:
  /// UNAVAILABLE if the port cannot be had.
  [[nodiscard]] static Result<std::unique_ptr<Replay>> open(const Dashboard::Options& options,
                                                            History history);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// With the port that was taken.
  [[nodiscard]] std::string address() const { return pages_->address(); }

 private:
  Replay(const std::string& logs, History history)
      : history_(std::move(history)), end_(history_.at(history_.end())), logs_(logs) {}
  [[nodiscard]] http::Page job_page(const http::Query& query) const;

  const History history_;
  const Board end_;
  LogReader logs_;                      ///< The server's thread's alone.
  std::unique_ptr<http::Pages> pages_;  ///< Its thread uses what is above.
};

/// What /api/job answers: `at` as in the query; "": the end.
[[nodiscard]] http::Page replay_page(const History& history, std::string_view at);

}  // namespace corro::dashboard
