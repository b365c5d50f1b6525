#include "screen/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "diagnosis/report.h"
#include "diagnosis/traceback.h"

namespace corro::screen {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr size_t kMaxSegment = 4096;
constexpr size_t kMaxHeld = 1U << 20U;
constexpr size_t kShownTogether = size_t{32} << 10U;  ///< Of lines that are shown at once.
/// A line without an end is likely to be completed so soon after its last byte.
constexpr Duration kYoung = std::chrono::milliseconds(50);
/// In a file it would stay broken, and on a busy host a rank may be stopped for longer behind it.
constexpr Duration kYoungInFile = std::chrono::seconds(1);
constexpr Duration kTracebackHold = std::chrono::milliseconds(500);

int lead_of(const Show& show, int ranks) {
  if (show.streams || show.timestamps) return -1;
  if (ranks == 1) return 0;
  if (show.mode == ShowMode::kAll) return -1;
  if (show.mode == ShowMode::kRanks) return show.ranks.size() == 1 ? show.ranks[0] : -1;
  return 0;
}

/// Appends the text with `prefix` before every line.
void append_prefixed(std::string& to, std::string_view prefix, std::string_view text) {
  while (true) {
    const size_t end = text.find('\n');
    to.append(prefix).append(text.substr(0, end));
    if (end == std::string_view::npos) return;
    to += '\n';
    text.remove_prefix(end + 1);
  }
}

/// Where a traceback begins in `bytes` at the beginning of a line, or npos.
size_t find_traceback(std::string_view bytes, bool at_line_start) {
  const size_t at = bytes.find(diagnosis::kTraceback);
  if (at == std::string_view::npos) return at;
  const bool starts_line = at == 0 ? at_line_start : bytes[at - 1] == '\n';
  return starts_line ? at : std::string_view::npos;
}

}  // namespace

Screen::Screen(Options options, Sink sink)
    : options_(std::move(options)),
      sink_(std::move(sink)),
      lead_(lead_of(options_.show, options_.ranks)),
      folder_({.hold = options_.hold}),
      splitters_(static_cast<size_t>(options_.ranks)),
      streams_(splitters_.size()),
      folds_(options_.ranks > 1 && (options_.show.mode == ShowMode::kDifferent ||
                                    options_.show.mode == ShowMode::kErrors)) {
  for (int rank = 0; rank < options_.ranks; ++rank) prefixes_.push_back(prefix_of({rank}));
}

void Screen::feed(int rank, io::Output stream, std::string_view bytes, Time now) {
  if (!shown(rank, stream)) return;
  if (options_.show.streams) {
    feed_streams(rank, stream, bytes, now);
  } else if (rank == lead_) {
    feed_lead(stream, bytes, now);
  } else {
    splitters_[static_cast<size_t>(rank)].of(stream).feed(
        bytes, [&](const Line& line) { feed_line(rank, stream, line, now); });
  }
  if (folder_.crowded()) tick(now);
}

void Screen::finish(int rank, io::Output stream, Time now) {
  if (!shown(rank, stream)) return;
  if (options_.show.streams) return finish_streams(rank, stream, now);
  splitters_[static_cast<size_t>(rank)].of(stream).finish([&](const Line& line) {
    if (rank != lead_) feed_line(rank, stream, line, now);
  });
  fold(tracebacks_.end(rank, stream), now);
}

void Screen::tick(Time now) {
  if (suspended_) {
    return show_folded(folder_.due(Time{}));  // Only what is too much to keep is shown now.
  }
  if (held_until_ <= now) release_errors(now);
  fold(tracebacks_.due(now), now);
  if (folder_.next_due() > now || free_at() > now) return;
  show_folded(folder_.due(now));
}

Time Screen::next_tick() const {
  if (suspended_) return Time::never();
  const Time held = std::min(held_until_, tracebacks_.next_due());
  const Time due = folder_.next_due();
  return std::min(held, due == Time::never() ? due : std::max(due, free_at()));
}

/// When lines of others may be shown: no line of the lead is about to be completed.
Time Screen::free_at() const {
  if (folder_.crowded(2)) return Time{};
  const auto free = [](const Cursor& cursor, bool is_terminal) {
    if (cursor.at_start()) return Time{};
    const Time young = cursor.last_write + kYoung;
    return is_terminal ? young : std::max(young, cursor.begun + kYoungInFile);
  };
  return std::max(free(out_cursor_, options_.out_is_terminal),
                  free(err_cursor_, options_.err_is_terminal));
}

void Screen::settle(int culprit) {
  if (!std::exchange(suspended_, false) || culprit < 0) return;
  if (culprit != lead_) held_errors_.clear();
  fold(tracebacks_.due(Time::never()), Time{});
  folder_.drop_errors_but(culprit);
}

void Screen::flush(Time now) {
  release_errors(now);
  fold(tracebacks_.due(Time::never()), now);
  show_folded(folder_.flush());
}

void Screen::note(const std::string& lines) {
  Cursor& cursor = cursor_of(io::Output::kErr);
  std::string text = cursor.at_start() ? "" : "\n";
  cursor = {};
  emit(io::Output::kErr, text + lines);
}

void Screen::set_status(const std::string& line) {
  if (line == status_ && (bottom_drawn_ || status_noted_)) return;
  status_ = line;
  if (options_.err_is_terminal && between_lines() && !status_noted_) return draw_bottom();
  if (!std::exchange(status_noted_, true)) note(line + "\n");
}

void Screen::end_status(const std::string& over) {
  if (status_.empty()) return;
  status_.clear();
  const bool was_noted = std::exchange(status_noted_, false);
  draw_bottom();
  if (was_noted && !over.empty()) note(over + "\n");
}

void Screen::set_progress(const std::string& line) {
  if (!options_.err_is_terminal || line == progress_) return;
  progress_ = line;
  if (between_lines()) draw_bottom();
}

void Screen::draw_bottom() {
  clear_bottom();
  if (!options_.err_is_terminal || bottom().empty() || !between_lines()) return;
  sink_(io::Output::kErr, bottom());
  bottom_drawn_ = true;
}

void Screen::clear_bottom() {
  if (std::exchange(bottom_drawn_, false)) sink_(io::Output::kErr, std::string(kClearLine));
}

/// Everything that is shown goes through here: the bottom is taken away before it and, if the line
/// is free, comes back below it.
void Screen::emit(io::Output stream, std::string bytes) {
  clear_bottom();
  const bool free = bytes.ends_with('\n');
  sink_(stream, std::move(bytes));
  if (free) draw_bottom();
}

bool Screen::shown(int rank, io::Output stream) const {
  switch (options_.show.mode) {
    case ShowMode::kErrors:
      return stream == io::Output::kErr;
    case ShowMode::kRanks: {
      const auto& ranks = options_.show.ranks;
      return std::ranges::find(ranks, rank) != ranks.end();
    }
    case ShowMode::kDifferent:
    case ShowMode::kAll:
      break;
  }
  return true;
}

Screen::Cursor& Screen::cursor_of(io::Output stream) {
  // Both streams on terminals share one cursor: it is nearly always one terminal.
  const bool shared = options_.out_is_terminal && options_.err_is_terminal;
  return stream == io::Output::kErr && !shared ? err_cursor_ : out_cursor_;
}

bool Screen::is_terminal(io::Output stream) const {
  return stream == io::Output::kOut ? options_.out_is_terminal : options_.err_is_terminal;
}

void Screen::write_raw(io::Output stream, std::string_view bytes, Time now) {
  if (bytes.empty()) return;
  Cursor& cursor = cursor_of(stream);
  cursor.last_write = now;
  if (cursor.at_start() || bytes.find('\n') != std::string_view::npos) cursor.begun = now;
  std::string_view line = bytes;
  if (const size_t end = line.rfind('\n'); end != std::string_view::npos) {
    cursor.segment.clear();
    cursor.returned = false;
    line.remove_prefix(end + 1);
  }
  for (const char c : line) {
    if (std::exchange(cursor.returned, c == '\r') && c != '\r') cursor.segment.clear();
    if (c != '\r' && cursor.segment.size() < kMaxSegment) cursor.segment += c;
  }
  emit(stream, std::string(bytes));
}

/// Whole lines, and pieces of progress bars, as they come.
void Screen::feed_streams(int rank, io::Output stream, std::string_view bytes, Time now) {
  PrefixedLines& lines = streams_[static_cast<size_t>(rank)].of(stream);
  write_raw(stream, lines.feed(bytes, [&] { return stream_prefix_of(rank, stream); }), now);
}

void Screen::finish_streams(int rank, io::Output stream, Time now) {
  PrefixedLines& lines = streams_[static_cast<size_t>(rank)].of(stream);
  const std::string rest = lines.finish([&] { return stream_prefix_of(rank, stream); });
  if (!rest.empty()) write_raw(stream, rest + "\n", now);
}

void Screen::feed_lead(io::Output stream, std::string_view bytes, Time now) {
  if (folds_ && stream == io::Output::kErr) bytes = hold_errors(bytes, now);
  if (folds_) note_lead(stream, bytes, now);
  write_raw(stream, bytes, now);
}

/// Remembers what the lead has shown, for comparing. A progress bar is no part of a traceback.
void Screen::note_lead(io::Output stream, std::string_view bytes, Time now) {
  splitters_[static_cast<size_t>(lead_)].of(stream).feed(bytes, [&](const Line& line) {
    if (line.progress) {
      folder_.lead(lead_, stream, line.text);
    } else {
      compare(lead_, stream, line.text, now);
    }
  });
}

/// Keeps back what may be a victim's last words; returns the bytes before it.
std::string_view Screen::hold_errors(std::string_view bytes, Time now) {
  size_t begin = 0;
  if (!suspended_ && held_errors_.empty()) {
    begin = find_traceback(bytes, cursor_of(io::Output::kErr).at_start());
    if (begin == std::string_view::npos) return bytes;
    held_until_ = now + kTracebackHold;
  }
  held_errors_ += bytes.substr(begin);
  if (held_errors_.size() > kMaxHeld) release_errors(now);
  return bytes.substr(0, begin);
}

void Screen::feed_line(int rank, io::Output stream, const Line& line, Time now) {
  if (!folds_) {
    show_line(stream, whole_prefix_of(rank) + std::string(line.text));
  } else if (!line.progress) {
    // Progress bars of other ranks only repeat rank 0's.
    compare(rank, stream, line.text, now);
  }
}

/// One more line of a rank; those of a traceback are compared as a whole.
void Screen::compare(int rank, io::Output stream, std::string_view line, Time now) {
  if (!tracebacks_.concerns(rank, stream, line)) return fold(rank, stream, line, now);
  fold(tracebacks_.add(rank, stream, line, now), now);
}

void Screen::fold(const std::vector<Passage>& passages, Time now) {
  for (const Passage& passage : passages) fold(passage.rank, passage.stream, passage.text, now);
}

void Screen::fold(int rank, io::Output stream, std::string_view passage, Time now) {
  if (rank == lead_) {
    folder_.lead(rank, stream, passage);
  } else {
    folder_.add(rank, stream, passage, now);
  }
}

void Screen::show_line(io::Output stream, std::string line) {
  Cursor& cursor = cursor_of(stream);
  if (cursor.at_start()) {
    emit(stream, std::move(line += '\n'));
  } else if (is_terminal(stream) && cursor.segment.size() < kMaxSegment) {
    // Put the line in the place of the unfinished one, and that one again below it.
    emit(stream,
         fmt::format("{}{}\n{}{}", kClearLine, line, cursor.segment, cursor.returned ? "\r" : ""));
  } else {
    cursor = {};
    emit(stream, "\n" + line + "\n");
  }
}

/// Lines of one stream are shown together: where a rank's line goes on, it is drawn again once.
void Screen::show_folded(const std::vector<FoldedLine>& lines) {
  for (size_t i = 0; i < lines.size();) {
    const io::Output stream = lines[i].stream;
    std::string text;
    append_folded(text, lines[i++]);
    while (i < lines.size() && lines[i].stream == stream && text.size() < kShownTogether)
      append_folded(text += '\n', lines[i++]);
    show_line(stream, std::move(text));
  }
}

void Screen::append_folded(std::string& text, const FoldedLine& line) const {
  const bool is_alone = line.ranks.size() == 1;
  if (is_alone) {
    append_prefixed(text, prefixes_[static_cast<size_t>(line.ranks[0])], line.text);
  } else {
    append_prefixed(text, prefix_of(line.ranks), line.text);
  }
  if (is_alone && line.times == 1) return;
  std::string count;
  if (!is_alone) count = fmt::format("x{} ranks", line.ranks.size());
  if (line.times > 1) {
    count += count.empty() ? fmt::format("x{}", line.times) : fmt::format(", {} times", line.times);
  }
  text += " (" + count + ")";
}

void Screen::release_errors(Time now) {
  held_until_ = Time::never();
  if (held_errors_.empty()) return;
  const std::string held = std::exchange(held_errors_, {});
  note_lead(io::Output::kErr, held, now);
  fold(tracebacks_.end(lead_, io::Output::kErr), now);
  write_raw(io::Output::kErr, held, now);
}

/// Where every line is shown.
std::string Screen::whole_prefix_of(int rank) const {
  const std::string& prefix = prefixes_[static_cast<size_t>(rank)];
  return options_.time ? options_.time() + " " + prefix : prefix;
}

/// Where every line is shown as Horovod prints it.
std::string Screen::stream_prefix_of(int rank, io::Output stream) const {
  return (options_.time ? options_.time() : "") + stream_prefix(rank, stream);
}

std::string Screen::prefix_of(const std::vector<int>& ranks) const {
  const std::string prefix = "[" + diagnosis::format_ranks(ranks) + "]";
  if (!options_.colour) return prefix + " ";
  static constexpr std::array kColours = {36, 33, 35, 32, 34, 31};
  const auto colour = kColours[static_cast<size_t>(ranks[0]) % kColours.size()];
  return fmt::format("\x1b[{}m{}\x1b[0m ", colour, prefix);
}

}  // namespace corro::screen
