#include "dashboard/shared_board.h"

#include <utility>

namespace corro::dashboard {
namespace {

constexpr Duration kUsualPause = std::chrono::seconds(1);
constexpr Duration kShortestPause = std::chrono::milliseconds(200);

}  // namespace

void SharedBoard::hear(Happening happening) {
  is_changed_ = is_changed_ || happening.kind != "step";
  board_.lock()->hear(std::move(happening));
}

void SharedBoard::show(JobPicture picture, Time now) {
  shown_ = now;
  is_changed_ = false;
  board_.lock()->show(std::move(picture), wall_now());
}

Time SharedBoard::due() const { return shown_ + (is_changed_ ? kShortestPause : kUsualPause); }

}  // namespace corro::dashboard
