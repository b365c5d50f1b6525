#include "diagnosis/flight_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::diagnosis {
namespace {

bool is_over(const obs::OpSnapshot& op) {
  return op.phase == obs::Phase::kDone || op.phase == obs::Phase::kFailed;
}

/// Time since a CLOCK_MONOTONIC stamp of another process; never negative.
Duration since(uint64_t stamp_ns, Time now) {
  const Duration span = now.since_start - Duration(static_cast<int64_t>(stamp_ns));
  return std::max(span, Duration::zero());
}

}  // namespace

const obs::OpSnapshot* telling_operation(const obs::ProcessSnapshot& process) {
  const auto oldest = [&process](const auto& says_most) {
    const auto found = std::ranges::find_if(process.recent, says_most);
    return found == process.recent.end() ? nullptr : &*found;
  };
  const auto goes_on = [](const obs::OpSnapshot& op) {
    return !is_over(op) && op.phase != obs::Phase::kQueued;
  };
  const auto* op = oldest([&](const auto& one) { return goes_on(one) && !one.is_firing(); });
  if (op == nullptr) op = oldest([](const auto& one) { return one.phase == obs::Phase::kRun; });
  if (op == nullptr) op = oldest(goes_on);
  if (op == nullptr) op = oldest([](const auto& one) { return !is_over(one); });
  if (op != nullptr) return op;
  return process.recent.empty() ? nullptr : &process.recent.back();
}

const obs::OpSnapshot* last_operation(const obs::ProcessSnapshot& process) {
  const auto& recent = process.recent;
  const auto last = std::find_if(recent.rbegin(), recent.rend(),
                                 [](const auto& op) { return op.op.kind.has_value(); });
  return last == recent.rend() ? nullptr : &*last;
}

std::string describe_operation(const obs::OpSnapshot& op) {
  const auto& kind = op.op.kind;
  if (!kind)
    return fmt::format("service {}, micro-batch {} (lane {})", op.name, op.op.op_id, op.plan_lane);
  std::string text(name_of(*kind));
  if (!op.is_firing() && op.op.op_id != obs::kNoOpId) text += fmt::format(" #{}", op.op.op_id + 1);
  if (!op.name.empty()) text += fmt::format(" '{}'", op.name);
  if (op.is_firing()) text += fmt::format(", micro-batch {}", op.op.op_id);
  if (kind == OpKind::kBarrier) return text;
  return text + fmt::format(" ({} x {})", name_of(op.op.dtype), op.op.count);
}

std::string describe_progress(const obs::ProcessSnapshot& process, Time now) {
  const obs::OpSnapshot* op = telling_operation(process);
  if (op == nullptr) return "no operation yet";
  const std::string what = describe_operation(*op);
  std::string peer;
  if (op->waiting_for >= 0) peer = fmt::format(", waiting for rank {}", op->waiting_for);
  if (op->phase == obs::Phase::kDone) {
    return fmt::format("last operation was {}, done {} before", what,
                       format_span(since(op->done_ns, now)));
  }
  if (op->phase == obs::Phase::kFailed) {
    return fmt::format("{} failed ({}){}", what, code_name(op->code), peer);
  }
  const uint64_t start = op->started_ns != 0 ? op->started_ns : op->queued_ns;
  return fmt::format("in {}, phase {} for {}{}", what, name_of(op->phase),
                     format_span(since(start, now)), peer);
}

std::string format_span(Duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  constexpr double kShort = 10;
  constexpr double kMinutes = 120;
  if (seconds < kShort) return fmt::format("{:.1f} s", seconds);
  if (seconds < kMinutes) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace corro::diagnosis
