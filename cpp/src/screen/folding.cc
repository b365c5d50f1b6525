#include "screen/folding.h"

#include <algorithm>
#include <functional>

namespace corro::screen {
namespace {

/// What a line that waits costs beside its text, where it is seen and where it waits.
constexpr size_t kPendingBytes = 256;

/// Takes colours and the like away: rank 0 may have a terminal where others have a pipe.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b' || i + 1 == text.size() || text[i + 1] != '[') {
      plain += text[i];
      continue;
    }
    i += 2;
    while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
  }
  return plain;
}

uint64_t key_of(io::Output stream, std::string_view text) {
  const bool coloured = text.find('\x1b') != std::string_view::npos;
  const size_t hash = coloured ? std::hash<std::string>{}(without_escapes(text))
                               : std::hash<std::string_view>{}(text);
  return hash * 2 + static_cast<uint64_t>(stream);
}

}  // namespace

void Folder::lead(int rank, io::Output stream, std::string_view text) {
  const uint32_t line = seen_.find_or_add(key_of(stream, text));
  const uint32_t printed = seen_.count(line, rank);
  seen_[line].shown = std::max(seen_[line].shown, printed);
}

void Folder::add(int rank, io::Output stream, std::string_view text, Time now) {
  const uint32_t line = seen_.find_or_add(key_of(stream, text));
  const uint32_t printed = seen_.count(line, rank);
  if (printed <= seen_[line].shown || seen_[line].waiting) return;
  seen_[line].waiting = true;
  pending_.push_back({line, stream, std::string(text), now + options_.hold});
  pending_bytes_ += kPendingBytes + text.size();
}

std::vector<FoldedLine> Folder::due(Time now) {
  std::vector<FoldedLine> lines;
  while (!pending_.empty() && (pending_.front().due <= now || crowded())) {
    FoldedLine line = release(pending_.front());
    pending_.pop_front();
    if (!line.ranks.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

FoldedLine Folder::release(Pending& pending) {
  pending_bytes_ -= kPendingBytes + pending.text.size();
  SeenLine& seen = seen_[pending.line];
  FoldedLine line{
      .stream = pending.stream, .text = std::move(pending.text), .ranks = {}, .times = 0};
  seen.for_each_count([&](const SeenLine::Count& count) {
    if (count.printed <= seen.shown) return;
    line.ranks.push_back(count.rank);
    line.times = std::max(line.times, count.printed - seen.shown);
  });
  std::ranges::sort(line.ranks);
  seen.shown += line.times;
  seen_.release(pending.line);
  return line;
}

void Folder::drop_errors_but(int culprit) {
  const auto printed_by_culprit = [&](const Pending& pending) {
    const SeenLine& seen = seen_[pending.line];
    bool printed = false;
    seen.for_each_count([&](const SeenLine::Count& count) {
      printed = printed || (count.rank == culprit && count.printed > seen.shown);
    });
    return printed;
  };
  std::deque<Pending> kept;
  for (Pending& pending : pending_) {
    if (pending.stream == io::Output::kOut || printed_by_culprit(pending)) {
      kept.push_back(std::move(pending));
    } else {
      (void)release(pending);
    }
  }
  pending_ = std::move(kept);
}

Time Folder::next_due() const {
  if (crowded()) return Time{};
  return pending_.empty() ? Time::never() : pending_.front().due;
}

}  // namespace corro::screen
