// JobDisplay: what a job shows to whoever looks: browsers and Prometheus (--dashboard), and the
// commands of its user (`corro status`, `corro top`).
//
//   display.hear(event);                          // each event
//   if (display.due() <= now) display.tick(now);  // for a dashboard
//   send(display.text(now));                      // to a command that asks
//
// Nobody looks: it hears events, and does nothing else. A picture is made when one is due
// (dashboard/shared_board.h), however many ask for it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dashboard/dashboard.h"
#include "dashboard/shared_board.h"
#include "launch/events.h"
#include "launch/job_course.h"
#include "launch/job_record.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. Course and plan outlive it.
class JobDisplay {
 public:
  struct Opened {
    std::unique_ptr<dashboard::SharedBoard> board = std::make_unique<dashboard::SharedBoard>();
    std::unique_ptr<dashboard::Dashboard> dashboard = nullptr;  ///< Null: nobody wants one.
  };

  JobDisplay(Opened opened, const JobCourse& course, const LaunchPlan& plan)
      : opened_(std::move(opened)), course_(course), plan_(plan) {}

  void hear(const Event& event);
  /// When tick() has something to do; Time::never() without a dashboard, and once the job is over.
  [[nodiscard]] Time due() const;
  void tick(Time now);
  /// The job as JSON, as GET /api/job says it; a second old at most.
  [[nodiscard]] const std::string& text(Time now);

  /// The job is over; this picture is the last one.
  void end(const Ending& ending, Time now);
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// Somebody has asked the dashboard in the last seconds.
  [[nodiscard]] bool is_watched(Time now) const;

 private:
  /// Another picture, if one is due.
  void refresh(Time now);

  Opened opened_;
  const JobCourse& course_;
  const LaunchPlan& plan_;
  bool is_over_ = false;
  std::string text_;
  Time written_{};  ///< When the picture was shown of which text_ is.
};

}  // namespace corro::launch
