// Notice: what a member of an elastic job tells people who look at the job. Nothing is decided by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace corro::wire {

enum class NoticeKind : uint8_t {
  kCheckpoint = 0,  ///< A checkpoint of `step` is durable; `text` is its folder, "": not known.
  kPlan = 1,        ///< A plan is loaded; `text` is its name.
  kTraining = 2,    ///< How training is at `step`, beside what was planned; `text` says it.
};
inline constexpr NoticeKind kLastNoticeKind = NoticeKind::kTraining;

/// Bytes of the name of a plan.
inline constexpr size_t kMaxPlanName = 63;

struct Notice {
  NoticeKind kind = NoticeKind::kCheckpoint;
  uint64_t step = 0;  ///< 0: it has none.
  std::string text = {};
};

}  // namespace corro::wire
