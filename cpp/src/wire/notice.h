// Notice: what a rank tells people who look at the job. Nothing is decided by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "wire/bootstrap.h"

namespace corro::wire {

enum class NoticeKind : uint8_t {
  kCheckpoint = 0,  ///< A checkpoint of `step` is durable; `text` is its folder, "": not known.
  kPlan = 1,        ///< A plan is loaded; `text` is its name.
  kTraining = 2,    ///< How training is at `step`, beside what was planned; `text` says it.
  kDecisions = 3,   ///< What the plan is that ranks follow; `text`: docs/dashboard.md has its JSON.
};
inline constexpr NoticeKind kLastNoticeKind = NoticeKind::kDecisions;

/// Bytes of the name of a plan.
inline constexpr size_t kMaxPlanName = 63;
/// Of any text.
inline constexpr size_t kMaxNoticeText = kMaxBootstrapValue - sizeof(uint64_t);

struct Notice {
  NoticeKind kind = NoticeKind::kCheckpoint;
  uint64_t step = 0;  ///< 0: it has none.
  std::string text = {};
};

/// Tells the agent of this host, whose socket has this name, as this member (CORRO_MEMBER_UUID). A
/// text that is too long is left out. UNAVAILABLE: nobody hears. Blocks, ten seconds at most, and
/// waits for no answer. Thread-safe.
[[nodiscard]] Status report(const std::string& agent, const std::string& member,
                            const Notice& notice);

}  // namespace corro::wire
