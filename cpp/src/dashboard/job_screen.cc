#include "dashboard/job_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "dashboard/terminal_text.h"

namespace corro::dashboard {
namespace {

constexpr size_t kGap = 2;                ///< Blanks between columns.
constexpr size_t kMostSentence = 3;       ///< Lines.
constexpr size_t kShownEvents = 5;        ///< The last ones.
constexpr size_t kRanksBeforeEvents = 4;  ///< Fewer of them are left than this: no event is shown.
constexpr Duration kRateWindow = std::chrono::seconds(3);

enum class Colour : uint8_t { kNone, kBold, kDim, kGood, kWarning, kBad };

std::string coloured(const std::string& text, Colour colour, const ScreenOptions& options) {
  constexpr std::array<std::string_view, 6> kCodes = {"", "1", "2", "32", "33", "31"};
  if (!options.colour || colour == Colour::kNone) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(colour)], text);
}

/// What it is without colour.
std::string_view sign_of(RankState state) {
  constexpr std::array<std::string_view, 7> kSigns = {"○", "●", "‖", "✓", "■", "✕", "✕"};
  return kSigns[static_cast<size_t>(state)];
}

Colour colour_of(RankState state) {
  constexpr std::array<Colour, 7> kColours = {Colour::kDim,  Colour::kNone, Colour::kWarning,
                                              Colour::kGood, Colour::kDim,  Colour::kBad,
                                              Colour::kBad};
  return kColours[static_cast<size_t>(state)];
}

Colour colour_of(JobState state) {
  if (state == JobState::kFailed) return Colour::kBad;
  if (state == JobState::kDone) return Colour::kGood;
  return state == JobState::kWaiting ? Colour::kWarning : Colour::kBold;
}

/// "12 s", "3 min 4 s", "2 h 5 min".
std::string span_of(UnixTime::duration time) {
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 3600;
  const int64_t whole =
      std::max<int64_t>(0, std::chrono::floor<std::chrono::seconds>(time).count());
  if (whole < kMinute) return fmt::format("{} s", whole);
  if (whole < kHour) return fmt::format("{} min {} s", whole / kMinute, whole % kMinute);
  return fmt::format("{} h {} min", whole / kHour, whole % kHour / kMinute);
}

// -- ranks ----------------------------------------------------------------------------------------

/// Places for which others wait too long.
std::set<int> awaited_places(const JobPicture& job) {
  std::set<int> places;
  if (job.state != JobState::kWaiting) return places;
  for (const RankRow& one : job.ranks)
    if (one.awaits >= 0) places.insert(one.awaits);
  return places;
}

/// The less, the more it matters.
int weight_of(const RankRow& one, const std::set<int>& awaited) {
  if (one.state == RankState::kFailed || one.state == RankState::kLost) return 0;
  if (awaited.contains(one.place)) return 1;
  if (one.state == RankState::kPaused) return 2;
  return one.state == RankState::kStarting || one.state == RankState::kRunning ? 3 : 4;
}

std::vector<RankRow> by_weight(const JobPicture& job, const std::set<int>& awaited) {
  std::vector<RankRow> ranks = job.ranks;
  std::ranges::stable_sort(ranks, {}, [&awaited](const RankRow& one) {
    return std::tuple(weight_of(one, awaited), one.step.value_or(0));
  });
  return ranks;
}

/// A table's line: what stands in the cells, and a colour for one of them.
struct Row {
  std::vector<std::string> cells;
  size_t coloured = 0;  ///< The cell that has it.
  Colour colour = Colour::kNone;
};

std::string rank_name(const RankRow& one) {
  const bool is_other = one.rank >= 0 && one.rank != one.place;
  return is_other ? fmt::format("{} (now {})", one.place, one.rank) : fmt::format("{}", one.place);
}

/// "1.5 s", "120 ms", "45 us".
std::string short_span(double seconds) {
  constexpr double kThousand = 1000;
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  seconds *= kThousand;
  return seconds >= 1 ? fmt::format("{:.3g} ms", seconds)
                      : fmt::format("{:.3g} us", seconds * kThousand);
}

std::string share_text(double share) {
  constexpr double kHundred = 100;
  return fmt::format("{:.0f} %", share * kHundred);
}

bool has_step_times(const RankRow& rank) { return rank.step_seconds.has_value(); }

/// `timed`: there are columns of what a step takes.
Row row_of(const RankRow& one, bool is_awaited, bool timed) {
  const std::string doing =
      one.operation + (one.operation.empty() || one.phase.empty() ? "" : ", ") + one.phase;
  Row row{.cells = {rank_name(one),
                    fmt::format("{} {}{}", sign_of(one.state), name_of(one.state),
                                is_awaited ? ", awaited" : ""),
                    one.step ? fmt::format("{}", *one.step) : ""},
          .coloured = 1,
          .colour = is_awaited ? Colour::kWarning : colour_of(one.state)};
  if (timed) {
    row.cells.push_back(one.step_seconds ? short_span(*one.step_seconds) : "");
    row.cells.push_back(one.wait_share ? share_text(*one.wait_share) : "");
  }
  for (std::string cell :
       {printable(doing), one.awaits < 0 ? "" : fmt::format("rank {}", one.awaits),
        printable(one.host), one.pid == 0 ? "" : fmt::format("{}", one.pid), printable(one.cause)})
    row.cells.push_back(std::move(cell));
  return row;
}

Row rank_titles(bool timed) {
  if (!timed)
    return {.cells = {"rank", "state", "step", "doing", "waits for", "host", "pid", "why"}};
  return {.cells = {"rank", "state", "step", "takes", "waits", "doing", "waits for", "host", "pid",
                    "why"}};
}

// -- tables ---------------------------------------------------------------------------------------

/// As wide as the widest cell of each column; the widest columns give way until all fit.
std::vector<size_t> column_widths(const std::vector<Row>& rows, size_t width) {
  constexpr size_t kLeast = 5;
  std::vector<size_t> widths(rows[0].cells.size(), 0);
  for (const Row& row : rows)
    for (size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row.cells[i]));
  size_t total = kGap * (widths.size() - 1);
  for (const size_t one : widths) total += one;
  while (total > width) {
    const auto widest = std::ranges::max_element(widths);
    if (*widest <= kLeast) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string line_of(const Row& row, const std::vector<size_t>& widths,
                    const ScreenOptions& options) {
  std::string line;
  size_t left = options.width;
  for (size_t i = 0; i < widths.size() && left > 0; ++i) {
    const bool is_last = i + 1 == widths.size();
    const size_t room = std::min(widths[i], left);
    const std::string text = is_last ? cut(row.cells[i], room) : padded(row.cells[i], room);
    line += i == row.coloured ? coloured(text, row.colour, options) : text;
    left -= room;
    const size_t gap = is_last ? 0 : std::min(kGap, left);
    line.append(gap, ' ');
    left -= gap;
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

/// Its rows from `first` on, so many; columns are as wide as all rows need, whichever are shown.
void add_rows(std::vector<std::string>& lines, const std::vector<Row>& rows, size_t first,
              size_t count, const ScreenOptions& options) {
  const std::vector<size_t> widths = column_widths(rows, options.width);
  for (size_t i = first; i < first + count; ++i) lines.push_back(line_of(rows[i], widths, options));
}

// -- the other parts ------------------------------------------------------------------------------

std::string rate_text(const BoardCopy& job) {
  const auto rate = step_rate(job.steps);
  const bool is_over =
      job.picture.state == JobState::kDone || job.picture.state == JobState::kFailed;
  if (!rate || is_over) return "";
  return *rate >= 10 ? fmt::format("{:.0f} steps/s", *rate) : fmt::format("{:.2g} steps/s", *rate);
}

/// "192", "192 of 1000 (19 %), about 12 min left".
std::string progress_text(const BoardCopy& job) {
  const auto progress = progress_of(job.picture, job.steps, job.now);
  if (!progress) return "-";
  std::string text = fmt::format("{}", progress->step);
  if (!progress->of) return text;
  const double share = static_cast<double>(progress->step) / static_cast<double>(*progress->of);
  text += fmt::format(" of {} ({})", *progress->of, share_text(share));
  return progress->eta_seconds ? text + ", " + describe_eta(*progress->eta_seconds) : text;
}

/// Whole numbers that are not too long have all their digits.
std::string number_text(double value) {
  constexpr double kWhole = 1e9;
  const bool is_whole = value == std::trunc(value) && std::abs(value) < kWhole;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

/// "loss 0.312 (0.3 to 0.33)   accuracy 0.9"; "": ranks log nothing.
std::string metrics_text(const BoardCopy& job) {
  std::string text;
  for (const Metric& one : metrics_of(job.picture.ranks)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "   ", printable(one.name),
                        number_text(one.mean));
    if (one.least != one.most)
      text += fmt::format(" ({} to {})", number_text(one.least), number_text(one.most));
  }
  return text;
}

std::string facts_of(const BoardCopy& job) {
  std::string text = fmt::format("{}   step {}", name_of(job.picture.state), progress_text(job));
  if (const std::string rate = rate_text(job); !rate.empty()) text += "   " + rate;
  return text + fmt::format("   epoch {}   running for {}", job.picture.epoch,
                            span_of(job.now - job.picture.started));
}

/// "[###.............] 19 %".
std::string bar_text(double share) {
  constexpr size_t kColumns = 16;
  const double inside = std::clamp(share, 0.0, 1.0);
  const auto done = static_cast<size_t>(inside * static_cast<double>(kColumns));
  return fmt::format("[{}{}] {}", std::string(done, '#'), std::string(kColumns - done, '.'),
                     share_text(inside));
}

std::string cause_of(const Happening& one) {
  if (!one.cause.empty()) return printable(one.cause);
  return one.kind == "waiting" ? "nobody waits for it any more" : "";
}

Row row_of(const Happening& one, UnixTime now) {
  const int place = one.place >= 0 ? one.place : one.rank;
  const bool is_bad = one.kind == "failure" || one.kind == "lost";
  return {.cells = {span_of(now - one.at) + " ago", printable(one.kind),
                    place < 0 ? "" : fmt::format("rank {}", place), printable(one.host),
                    one.step ? fmt::format("step {}", *one.step) : "", cause_of(one)},
          .coloured = 1,
          .colour = is_bad ? Colour::kBad : Colour::kNone};
}

/// The newest one last.
std::vector<Row> event_rows(const BoardCopy& job) {
  std::vector<Row> rows;
  const size_t count = std::min(kShownEvents, job.happenings.size());
  for (size_t i = job.happenings.size() - count; i < job.happenings.size(); ++i)
    rows.push_back(row_of(job.happenings[i], job.now));
  return rows;
}

/// Which lines each part has.
struct Layout {
  std::vector<std::string> head;  ///< Sentence, facts, and what is logged.
  size_t ranks = 0;               ///< That are shown.
  size_t events = 0;              ///< The same.
  bool counts = false;            ///< A line says how many more ranks there are.
};

Layout layout_of(const BoardCopy& job, const ScreenOptions& options) {
  Layout layout;
  const JobPicture& picture = job.picture;
  const size_t all = picture.ranks.size();
  for (const std::string& line : wrapped(printable(picture.summary), options.width, kMostSentence))
    layout.head.push_back(coloured(line, colour_of(picture.state), options));
  layout.head.push_back(cut(facts_of(job), options.width));
  if (const std::string metrics = metrics_text(job); !metrics.empty())
    layout.head.push_back(cut(metrics, options.width));
  const size_t around =
      layout.head.size() + 2 + (options.footer.empty() ? 0 : 1);  // Blank, titles.
  size_t room = options.height - std::min(options.height, around);
  const size_t wanted = std::min(kShownEvents, job.happenings.size());
  const size_t with_events = wanted == 0 ? 0 : wanted + 1;
  if (room >= with_events + std::min(all, kRanksBeforeEvents)) {
    layout.events = wanted;
    room -= with_events;
  }
  layout.counts = all > room;
  layout.ranks = layout.counts ? room - std::min<size_t>(room, 1) : all;
  return layout;
}

void add_ranks(std::vector<std::string>& lines, const BoardCopy& job, const Layout& layout,
               const ScreenOptions& options) {
  const std::set<int> awaited = awaited_places(job.picture);
  const bool timed = std::ranges::any_of(job.picture.ranks, has_step_times);
  std::vector<Row> rows = {rank_titles(timed)};
  for (const RankRow& one : layout.counts ? by_weight(job.picture, awaited) : job.picture.ranks)
    rows.push_back(row_of(one, awaited.contains(one.place), timed));
  const size_t above = std::min(options.scroll, rows.size() - 1 - layout.ranks);
  add_rows(lines, rows, 0, 1, options);
  lines.back() = coloured(lines.back(), Colour::kDim, options);
  add_rows(lines, rows, 1 + above, layout.ranks, options);
  if (!layout.counts) return;
  const size_t below = rows.size() - 1 - layout.ranks - above;
  const std::string more =
      above == 0 ? fmt::format("{} more", below) : fmt::format("{} above, {} more", above, below);
  lines.push_back(coloured(cut(more, options.width), Colour::kDim, options));
}

}  // namespace

std::optional<double> step_rate(const std::vector<StepPoint>& steps) {
  if (steps.size() < 2) return std::nullopt;
  const StepPoint& last = steps.back();
  const auto is_before = [&last](const StepPoint& one) { return last.at - one.at >= kRateWindow; };
  const auto before = std::ranges::find_if(steps.rbegin(), steps.rend(), is_before);
  const StepPoint& first = before == steps.rend() ? steps.front() : *before;
  const double seconds = std::chrono::duration<double>(last.at - first.at).count();
  if (seconds <= 0) return std::nullopt;
  // A step that falls is of a job that has gone back.
  return std::max(0.0,
                  (static_cast<double>(last.step) - static_cast<double>(first.step)) / seconds);
}

size_t ranks_at_once(const BoardCopy& job, const ScreenOptions& options) {
  return layout_of(job, options).ranks;
}

std::string progress_line(const BoardCopy& job) {
  const auto progress = progress_of(job.picture, job.steps, job.now);
  if (!progress) return "";
  std::string text = fmt::format("step {}", progress->step);
  if (progress->of) {
    const double share = static_cast<double>(progress->step) / static_cast<double>(*progress->of);
    text += fmt::format(" of {} {}", *progress->of, bar_text(share));
  }
  if (progress->eta_seconds) text += ", " + describe_eta(*progress->eta_seconds);
  for (const std::string& part : {rate_text(job), metrics_text(job)})
    if (!part.empty()) text += "   " + part;
  return text;
}

size_t most_scroll(const BoardCopy& job, const ScreenOptions& options) {
  return job.picture.ranks.size() - layout_of(job, options).ranks;
}

std::vector<std::string> job_lines(const BoardCopy& job, const ScreenOptions& options) {
  const Layout layout = layout_of(job, options);
  std::vector<std::string> lines = layout.head;
  lines.emplace_back();
  add_ranks(lines, job, layout, options);
  if (layout.events > 0) {
    lines.emplace_back();
    add_rows(lines, event_rows(job), 0, layout.events, options);
  }
  const size_t body = options.height - (options.footer.empty() ? 0 : 1);
  if (lines.size() > body) lines.resize(body);
  if (!options.footer.empty())
    lines.push_back(coloured(cut(printable(options.footer), options.width), Colour::kDim, options));
  return lines;
}

}  // namespace corro::dashboard
