#include "launch/job_display.h"

#include <utility>

#include "dashboard/board_text.h"
#include "dashboard/job_screen.h"
#include "launch/job_picture.h"

namespace corro::launch {

Result<JobDisplay::Opened> JobDisplay::open(const LaunchPlan& plan, Showroom& room) {
  const UnixTime started = wall_now();
  CORRO_ASSIGN(HistoryFile history, HistoryFile::create(plan, started));
  return Opened{.started = started,
                .history = std::move(history),
                .board = std::make_unique<dashboard::SharedBoard>(),
                .room = &room};
}

void JobDisplay::hear(const Event& event) {
  dashboard::Happening happening = happening_of(event, wall_now());
  output_.note_incomplete(opened_.history.hear(happening));
  opened_.board->hear(std::move(happening));
}

void JobDisplay::look(Time now) {
  if (!is_over_ && opened_.history.due(wall_now())) show(now);
}

Time JobDisplay::due() const {
  return opened_.dashboard == nullptr || is_over_ ? Time::never() : opened_.board->due();
}

void JobDisplay::tick(Time now) {
  if (due() <= now) refresh(now);
}

void JobDisplay::refresh(Time now) {
  if (!is_over_ && opened_.board->due() <= now) show(now);
}

dashboard::JobPicture JobDisplay::picture() const {
  return picture_of(course_, plan_, opened_.started);
}

void JobDisplay::show(Time now) {
  dashboard::JobPicture made = picture();
  const UnixTime clock = wall_now();
  if (opened_.history.due(clock)) output_.note_incomplete(opened_.history.show(made, clock));
  opened_.board->show(std::move(made), now);
}

const std::string& JobDisplay::text(Time now) {
  refresh(now);
  const Time shown = opened_.board->shown();
  if (std::exchange(written_, shown) != shown || text_.empty())
    text_ = dashboard::write_job(opened_.board->copy(), wall_now());
  return text_;
}

std::string JobDisplay::progress(Time now) {
  refresh(now);
  const dashboard::Board board = opened_.board->copy();
  return dashboard::progress_line(
      {.picture = board.picture(), .steps = board.steps(), .now = wall_now()});
}

Result<std::string> JobDisplay::page() {
  if (is_over_) return Status(Code::kFailedPrecondition, "the job is over");
  if (opened_.dashboard == nullptr) {
    CORRO_ASSIGN(opened_.dashboard, opened_.room->open_for_asker(*opened_.board, plan_));
  }
  return opened_.room->address(plan_.machine.host);
}

void JobDisplay::end(const Ending& ending, Time now) {
  is_over_ = true;
  dashboard::JobPicture last = picture_of_end(picture(), ending);
  output_.note_incomplete(opened_.history.end(last, wall_now()));
  opened_.board->show(std::move(last), now);
}

bool JobDisplay::is_watched(Time now) const {
  return opened_.dashboard != nullptr && opened_.dashboard->is_watched(now);
}

}  // namespace corro::launch
