#include "launch/job_display.h"

#include <utility>

#include "dashboard/board_text.h"
#include "launch/job_picture.h"

namespace corro::launch {

void JobDisplay::hear(const Event& event) { opened_.board->hear(happening_of(event, wall_now())); }

Time JobDisplay::due() const {
  return opened_.dashboard == nullptr || is_over_ ? Time::never() : opened_.board->due();
}

void JobDisplay::tick(Time now) {
  if (due() <= now) refresh(now);
}

void JobDisplay::refresh(Time now) {
  dashboard::SharedBoard& board = *opened_.board;
  if (!is_over_ && board.due() <= now) board.show(picture_of(course_, plan_, board.opened()), now);
}

const std::string& JobDisplay::text(Time now) {
  refresh(now);
  const Time shown = opened_.board->shown();
  if (std::exchange(written_, shown) != shown || text_.empty())
    text_ = dashboard::write_job(opened_.board->copy(), wall_now());
  return text_;
}

void JobDisplay::end(const Ending& ending, Time now) {
  is_over_ = true;
  dashboard::SharedBoard& board = *opened_.board;
  board.show(picture_of_end(picture_of(course_, plan_, board.opened()), ending), now);
}

bool JobDisplay::is_watched(Time now) const {
  return opened_.dashboard != nullptr && opened_.dashboard->is_watched(now);
}

}  // namespace corro::launch
