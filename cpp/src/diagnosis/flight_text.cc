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
  for (const auto& op : process.recent) {
    if (!is_over(op) && op.phase != obs::Phase::kQueued) return &op;
  }
  for (const auto& op : process.recent) {
    if (!is_over(op)) return &op;
  }
  return process.recent.empty() ? nullptr : &process.recent.back();
}

std::string describe_operation(const obs::OpSnapshot& op) {
  std::string text(name_of(op.op.kind));
  if (op.op.op_id != obs::kNoOpId) text += fmt::format(" #{}", op.op.op_id + 1);
  if (!op.name.empty()) text += fmt::format(" '{}'", op.name);
  if (op.op.kind == OpKind::kBarrier) return text;
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
