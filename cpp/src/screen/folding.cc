#include "screen/folding.h"

#include <algorithm>
#include <functional>

namespace corro::screen {
namespace {

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
  Entry& entry = entry_of(key_of(stream, text));
  const uint32_t printed = ++entry.printed[static_cast<size_t>(rank)];
  entry.shown = std::max(entry.shown, printed);
}

void Folder::add(int rank, io::Output stream, std::string_view text, Time now) {
  const uint64_t key = key_of(stream, text);
  Entry& entry = entry_of(key);
  const uint32_t printed = ++entry.printed[static_cast<size_t>(rank)];
  if (printed <= entry.shown || entry.waiting) return;
  entry.waiting = true;
  pending_.push_back({key, stream, std::string(text), now + options_.hold});
  pending_bytes_ += text.size();
}

std::vector<FoldedLine> Folder::due(Time now) {
  std::vector<FoldedLine> lines;
  while (!pending_.empty() &&
         (pending_.front().due <= now || pending_bytes_ > options_.max_pending_bytes)) {
    FoldedLine line = release(pending_.front());
    pending_.pop_front();
    if (!line.ranks.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

FoldedLine Folder::release(Pending& pending) {
  pending_bytes_ -= pending.text.size();
  Entry& entry = entries_.at(pending.key);
  entry.waiting = false;
  FoldedLine line{
      .stream = pending.stream, .text = std::move(pending.text), .ranks = {}, .times = 0};
  for (size_t rank = 0; rank < entry.printed.size(); ++rank) {
    if (entry.printed[rank] <= entry.shown) continue;
    line.ranks.push_back(static_cast<int>(rank));
    line.times = std::max(line.times, entry.printed[rank] - entry.shown);
  }
  entry.shown += line.times;
  return line;
}

void Folder::drop_errors_but(int culprit) {
  const auto printed_by_culprit = [&](const Pending& pending) {
    const Entry& entry = entries_.at(pending.key);
    return culprit >= 0 && entry.printed[static_cast<size_t>(culprit)] > entry.shown;
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

Time Folder::next_due() const { return pending_.empty() ? Time::never() : pending_.front().due; }

Folder::Entry& Folder::entry_of(uint64_t key) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  const auto ranks = static_cast<size_t>(options_.ranks);
  // The oldest lines are forgotten first; one that still waits is put behind.
  while (order_.size() >= std::max<size_t>(1, options_.max_remembered / ranks)) {
    const uint64_t oldest = order_.front();
    if (entries_.at(oldest).waiting) {
      if (pending_.size() >= order_.size()) break;
      order_.push_back(oldest);
    } else {
      entries_.erase(oldest);
    }
    order_.pop_front();
  }
  order_.push_back(key);
  Entry& entry = entries_[key];
  entry.printed.resize(ranks);
  return entry;
}

}  // namespace corro::screen
