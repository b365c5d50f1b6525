// JobDisplay: the pictures of a job, and who gets them: browsers and Prometheus (--dashboard), the
// commands of its user (`corro status`, `corro top`), and history.jsonl, for `corro dash`.
//
//   display.hear(event);                          // each event
//   display.look(now);                            // once a second: for the history
//   if (display.due() <= now) display.tick(now);  // for a dashboard
//   send(display.text(now));                      // to a command that asks
//   show(display.progress(now));                  // to a terminal
//   send(display.page());                         // to one that asks where the page is
//
// Each picture goes to the board, and to the history if that wants one. The history wants one a second,
// and fewer once they are many (dashboard/history.h); a dashboard, and who asks, one a second, and soon
// after something has happened (dashboard/shared_board.h), however many look.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dashboard/dashboard.h"
#include "dashboard/shared_board.h"
#include "launch/events.h"
#include "launch/history_file.h"
#include "launch/job_course.h"
#include "launch/job_output.h"
#include "launch/job_record.h"
#include "launch/plan.h"
#include "launch/showroom.h"

namespace corro::launch {

/// Loop-confined. Course, plan, output and showroom outlive it.
class JobDisplay {
 public:
  struct Opened {
    UnixTime started{};
    HistoryFile history;
    std::unique_ptr<dashboard::SharedBoard> board;
    Showroom* room = nullptr;
    std::unique_ptr<dashboard::Dashboard> dashboard = nullptr;  ///< Null: nobody wants one.
  };
  /// Opens the history in the folder of the logs, which is there, and a board; no dashboard yet. The
  /// job has started now.
  static Result<Opened> open(const LaunchPlan& plan, Showroom& room);

  /// `output`: is told once if the history cannot be written.
  JobDisplay(Opened opened, const JobCourse& course, const LaunchPlan& plan, JobOutput& output)
      : opened_(std::move(opened)), course_(course), plan_(plan), output_(output) {}

  void hear(const Event& event);
  void look(Time now);
  /// When tick() has something to do; Time::never() without a dashboard, and once the job is over.
  [[nodiscard]] Time due() const;
  void tick(Time now);
  /// The job as JSON, as GET /api/job says it; a second old at most.
  [[nodiscard]] const std::string& text(Time now);

  /// How far the job is, in one line for a terminal; "": no rank has told a step. A second old at most.
  [[nodiscard]] std::string progress(Time now);
  /// The address of the dashboard, with its token, which is for the job's user alone. Opens one on
  /// loopback if there is none. FAILED_PRECONDITION once the job is over.
  [[nodiscard]] Result<std::string> page();

  /// The job is over; this picture is the last one.
  void end(const Ending& ending, Time now);
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// Somebody has asked the dashboard in the last seconds.
  [[nodiscard]] bool is_watched(Time now) const;

 private:
  [[nodiscard]] dashboard::JobPicture picture() const;
  /// Another picture, if the board wants one.
  void refresh(Time now);
  void show(Time now);

  Opened opened_;
  const JobCourse& course_;
  const LaunchPlan& plan_;
  JobOutput& output_;
  bool is_over_ = false;
  std::string text_;
  Time written_{};  ///< When the picture was shown of which text_ is.
};

}  // namespace corro::launch
