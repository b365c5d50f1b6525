#include "kube/client/log_lines.h"

#include <algorithm>
#include <utility>

namespace corro::kube {
namespace {

/// "2026-11-24T20:15:04.123456789+01:00 " has 36.
constexpr size_t kMostTimeBytes = 40;
constexpr size_t kMostSeen = size_t{1} << 16U;

}  // namespace

std::optional<std::chrono::sys_seconds> LogLines::since() const {
  if (!newest_) return {};
  return std::chrono::floor<std::chrono::seconds>(*newest_) - std::chrono::seconds(1);
}

void LogLines::begin() {
  const bool is_cut = in_text_ && !is_left_out_ && line_.bytes + skip_ > 0;
  if (is_cut) cut_ = Line{line_.time, line_.bytes + skip_};
  is_again_ = newest_.has_value();
  if (is_again_) first_wanted_ = has_tail_ ? std::max<UnixTime>(*since(), *oldest_) : *since();
  has_times_ = false;
  again_ = seen_;
  in_text_ = false;
  start_.clear();
}

Status LogLines::feed(std::string_view piece, const Receive& receive) {
  std::string out;
  while (!piece.empty()) {
    if (in_text_) {
      take_text(piece, out);
    } else {
      take_time(piece, out);
    }
  }
  return out.empty() ? Status() : receive(out);
}

void LogLines::take_time(std::string_view& piece, std::string& out) {
  const char c = piece.front();
  piece.remove_prefix(1);
  start_ += c;
  if (c != ' ' && c != '\n' && start_.size() < kMostTimeBytes) return;
  const std::string text = std::exchange(start_, {});
  const std::string_view rest(text);
  const auto time = c == ' ' ? parse_rfc3339(rest.substr(0, rest.size() - 1)) : std::nullopt;
  begin_line(time);
  std::string_view own = time ? std::string_view() : rest;
  if (!own.empty()) take_text(own, out);
}

/// True for a line of a stream before; counts it.
bool LogLines::was_received(UnixTime time) {
  if (!is_again_) return false;
  if (time < first_wanted_) return true;
  const auto found = again_.find(time);
  if (found == again_.end()) return false;
  if (--found->second == 0) again_.erase(found);
  return true;
}

/// A server may say something of its own without a time. A new stream may begin behind a line's
/// beginning, and the rest of that line then has no time: it was received before.
void LogLines::begin_line(std::optional<UnixTime> time) {
  in_text_ = true;
  line_ = {time, 0};
  skip_ = 0;
  is_left_out_ = time ? was_received(*time) : is_again_ && !has_times_;
  has_times_ = has_times_ || time;
  if (!time || is_left_out_) return;
  newest_ = std::max(newest_.value_or(*time), *time);
  oldest_ = std::min(oldest_.value_or(*time), *time);
  if (cut_ && cut_->time == time) skip_ = std::exchange(cut_, {})->bytes;
}

void LogLines::take_text(std::string_view& piece, std::string& out) {
  const size_t end = piece.find('\n');
  std::string_view part = piece.substr(0, end == std::string_view::npos ? end : end + 1);
  piece.remove_prefix(part.size());
  if (!is_left_out_) {
    line_.bytes += part.size();
    const uint64_t skipped = std::min<uint64_t>(skip_, part.size());
    skip_ -= skipped;
    part.remove_prefix(skipped);
    // The rest of the line that was cut does not come any more.
    if (cut_ && !part.empty()) out += '\n';
    if (!part.empty()) cut_.reset();
    out += part;
  }
  if (end != std::string_view::npos) end_line();
}

void LogLines::end_line() {
  in_text_ = false;
  if (is_left_out_ || !line_.time) return;
  ++seen_[*line_.time];
  seen_.erase(seen_.begin(), seen_.lower_bound(*since()));
  if (seen_.size() > kMostSeen) seen_.erase(seen_.begin());
}

}  // namespace corro::kube
