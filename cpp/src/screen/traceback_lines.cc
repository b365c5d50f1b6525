#include "screen/traceback_lines.h"

#include <algorithm>

#include "diagnosis/traceback.h"

namespace corro::screen {
namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kGroupHeader = "  + Exception Group Traceback (most recent call last):";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

bool is_header(std::string_view line) {
  return line.starts_with(kHeader) || line.starts_with(kGroupHeader);
}

/// What Python prints between the tracebacks of one chain.
bool is_link(std::string_view line) {
  return line.starts_with("During handling of the above exception") ||
         line.starts_with("The above exception was the direct cause");
}

}  // namespace

std::vector<Passage> TracebackLines::add(int rank, io::Output stream, std::string_view line,
                                         Time now) {
  std::vector<Passage> passages;
  const std::string_view plain = diagnosis::without_rank(line);
  const auto found = open_.find({rank, stream});
  if (found != open_.end()) {
    Open& open = found->second;
    if (is_blank(plain)) {
      open.gap += "\n" + std::string(plain);
      return passages;
    }
    if (open.text.size() < kMaxBytes && goes_on(open, plain)) {
      open.text.append(open.gap).append("\n").append(plain);
      open.gap.clear();
      return passages;
    }
    passages = end(rank, stream);
  }
  if (is_header(plain)) {
    const State state = plain.starts_with(kHeader) ? State::kFrames : State::kGroup;
    open_[{rank, stream}] = {
        .text = std::string(plain), .gap = "", .state = state, .due = now + kPatience};
  } else if (!is_blank(line)) {
    passages.push_back({rank, stream, std::string(line)});
  }
  return passages;
}

bool TracebackLines::concerns(int rank, io::Output stream, std::string_view line) const {
  if (is_blank(line) || is_header(diagnosis::without_rank(line))) return true;
  return !open_.empty() && open_.contains({rank, stream});
}

/// Whether the line belongs to the traceback; moves the state on.
bool TracebackLines::goes_on(Open& open, std::string_view line) {
  const bool indented = line.starts_with(' ');
  switch (open.state) {
    case State::kFrames:
      if (!indented) {
        open.state = State::kMessage;
        open.message_lines = 0;
      }
      return true;
    case State::kGroup:
      if (indented) return true;
      open.state = State::kLink;
      return is_link(line);
    case State::kMessage:
      if (is_message(open, line)) return true;
      open.state = State::kLink;
      return is_link(line);
    case State::kLink:
      open.state = line.starts_with(kHeader) ? State::kFrames : State::kGroup;
      return is_header(line);
  }
  return false;
}

/// Whether the line is one more of an exception's message; counts it.
bool TracebackLines::is_message(Open& open, std::string_view line) {
  if (!open.gap.empty() || is_header(line) || is_link(line) ||
      diagnosis::begins_other_error(line)) {
    return false;
  }
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  return indented || ++open.message_lines <= diagnosis::kMaxMessageLines;
}

std::vector<Passage> TracebackLines::end(int rank, io::Output stream) {
  const auto found = open_.find({rank, stream});
  if (found == open_.end()) return {};
  std::vector<Passage> passages = {{rank, stream, std::move(found->second.text)}};
  open_.erase(found);
  return passages;
}

std::vector<Passage> TracebackLines::due(Time now) {
  std::vector<Passage> passages;
  std::erase_if(open_, [&](auto& entry) {
    auto& [key, open] = entry;
    if (open.due > now) return false;
    passages.push_back({key.first, key.second, std::move(open.text)});
    return true;
  });
  return passages;
}

Time TracebackLines::next_due() const {
  Time next = Time::never();
  for (const auto& [key, open] : open_) next = std::min(next, open.due);
  return next;
}

}  // namespace corro::screen
