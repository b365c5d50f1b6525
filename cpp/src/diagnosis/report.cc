#include "diagnosis/report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/ranges.h"
#include "diagnosis/advice.h"
#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"
#include "io/signals.h"

namespace corro::diagnosis {
namespace {

constexpr size_t kLabelWidth = 9;
constexpr size_t kCauseLines = 3;

std::string describe_cause(const RankEnd& end) {
  if (!end.lost.empty()) return end.lost;
  if (!end.out_of_memory.empty()) return end.out_of_memory;
  std::string said = end.crash.error.empty() ? end.crash.last_line : end.crash.error;
  if (!end.crash.details.empty()) said += " " + end.crash.details;
  const bool raised = end.stopped && !end.crash.error.empty();  // before the launcher's signal
  if (end.ended && WIFSIGNALED(end.status) && !raised) {
    const int signal = WTERMSIG(end.status);
    const std::string_view meaning = io::signal_meaning(signal);
    std::string text = "killed by " + io::signal_name(signal);
    if (!meaning.empty()) text += fmt::format(" ({})", meaning);
    // Python's own words about a signal repeat it.
    const bool repeats = said.starts_with("Fatal Python error") || end.crash.error.empty();
    return repeats ? text : text + ": " + said;
  }
  if (said.empty()) return fmt::format("exited with status {}", exit_code(end.status));
  return said;
}

std::string describe_place(const Frame& frame) {
  if (frame.file.empty()) return "";
  std::string text = fmt::format("{}:{}", frame.file, frame.line);
  if (!frame.function.empty()) text += " in " + frame.function;
  if (!frame.code.empty()) text += ": " + frame.code;
  return text;
}

class Block {
 public:
  Block(const std::string& title, size_t width) : width_(width) { add_line(title); }
  /// Adds a text that may go on in the lines below, up to `lines` in all.
  void add(std::string_view label, std::string text, size_t lines = 1) {
    if (text.empty()) return;
    for (; lines > 1; --lines, label = "") {
      const size_t space = text.rfind(' ', width_ - kLabelWidth);
      if (text.size() <= width_ - kLabelWidth || space == std::string::npos) break;
      add_line(fmt::format("  {:<6} {}", label, text.substr(0, space)));
      text.erase(0, space + 1);
    }
    add_line(fmt::format("  {:<6} {}", label, text));
  }
  void add_line(const std::string& line) {
    if (lines_++ < kMaxBlockLines) text_ += fit(line, width_) + "\n";
  }
  [[nodiscard]] size_t lines() const { return lines_; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  size_t width_;
  size_t lines_ = 0;
  std::string text_;
};

const RankEnd& end_of(std::span<const RankEnd> ends, int rank) {
  const RankEnd* found = find_rank(ends, rank);
  CORRO_CHECK(found != nullptr, rank);
  return *found;
}

void add_flight(const RankEnd& end, Time now, FailureReport& report) {
  if (!end.flight) return;
  report.step = end.flight->step;
  report.with = describe_progress(*end.flight, now);
  if (const auto* op = telling_operation(*end.flight)) {
    report.op = op->op.kind ? std::string(name_of(*op->op.kind)) : op->name;
    report.phase = name_of(op->phase);
  }
}

/// Of a rank that waited in another operation than the culprit, which waited for it.
std::string describe_elsewhere(const RankEnd& end) {
  const auto* op = end.flight ? telling_operation(*end.flight) : nullptr;
  return op == nullptr ? ""
                       : fmt::format("rank {} waited in {}", end.rank, describe_operation(*op));
}

/// Those who were neither to blame nor gave up.
std::vector<int> stopped_ranks(const FailureReport& report) {
  std::vector<int> stopped;
  std::ranges::copy_if(report.victims, std::back_inserter(stopped), [&](int rank) {
    return std::ranges::find(report.waited, rank) == report.waited.end();
  });
  return stopped;
}

std::string describe_others(const FailureReport& report) {
  if (!report.elsewhere.empty()) return report.elsewhere;
  std::string text;
  if (!report.alike.empty()) {
    text = format_ranks(report.alike) + " failed in the same way";
    if (!report.alike_at.empty()) text += " (" + report.alike_at + ")";
  }
  if (!report.waited.empty()) {
    text = format_ranks(report.waited) + " gave up";
    if (!report.waited_at.empty()) text += " at " + report.waited_at;
  }
  const std::vector<int> stopped = stopped_ranks(report);
  if (stopped.empty()) return text;
  return text + (text.empty() ? "" : "; ") +
         fmt::format("{} {} stopped because of it ({})", stopped.size(),
                     stopped.size() == 1 ? "rank was" : "ranks were", format_ranks(stopped));
}

/// Makes a report that says of the culprit what it says of one that failed say what is known of one
/// that did not come: what the first rank that gave up has seen, and where the culprit was.
void add_missing(const RankEnd& end, const RankEnd& waiter, FailureReport& report) {
  report.cause = (end.paused ? "stopped by a signal; " : "") + describe_cause(waiter);
  report.exit = exit_code(waiter.status);
  report.where = describe_place(end.at.file.empty() ? end.crash.where : end.at);
  report.waited_at = describe_place(waiter.crash.where);
  FailureReport theirs;
  add_flight(waiter, waiter.when, theirs);
  report.op = theirs.op;
  report.phase = theirs.phase;
}

}  // namespace

std::string fit(const std::string& line, size_t width) {
  std::string fitted;
  size_t characters = 0;
  for (const char i : line) {
    const auto byte = static_cast<unsigned char>(i);
    if ((byte & 0xC0U) != 0x80U && ++characters > width) {
      fitted.resize(fitted.size() - std::min<size_t>(3, fitted.size()));
      return fitted + "...";
    }
    fitted += byte < 0x20 || byte == 0x7F ? ' ' : i;
  }
  return fitted;
}

std::string format_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + format_ranges(ranks);
}

FailureReport describe_failure(const Verdict& verdict, std::span<const RankEnd> ends,
                               const ReportContext& context) {
  const RankEnd& end = end_of(ends, verdict.culprit);
  FailureReport report;
  report.rank = end.rank;
  report.host = end.host.empty() ? context.host : end.host;
  report.pid = end.pid;
  report.cause = describe_cause(end);
  // A rank that had printed its error and was stopped on its way out would have ended with 1.
  report.exit = end.stopped && !end.crash.error.empty() ? 1 : exit_code(end.status);
  report.where = describe_place(end.crash.where);
  report.log = fmt::format("{}/rank-{}.log", context.log_dir, end.rank);
  report.advice = advise(end, verdict, ends);
  if (context.hint) report.hint = context.hint(end.crash);
  report.alike = verdict.alike;
  for (const int rank : verdict.alike) {
    const std::string place = describe_place(end_of(ends, rank).crash.where);
    if (place.empty() || place == report.where) continue;
    report.alike_at = fmt::format("rank {} at {}", rank, place);
    break;
  }
  report.victims = verdict.victims;
  add_flight(end, end.ended ? end.when : context.now, report);
  if (verdict.elsewhere >= 0)
    report.elsewhere = describe_elsewhere(end_of(ends, verdict.elsewhere));
  report.waited = verdict.waited;
  if (!verdict.waited.empty()) add_missing(end, end_of(ends, verdict.waited.front()), report);
  std::ranges::sort(report.waited);
  return report;
}

std::string format_block(const FailureReport& report, size_t width) {
  std::string who = fmt::format("corro: rank {} {} on {} (pid {}", report.rank,
                                report.waited.empty() ? "failed" : "kept others waiting",
                                report.host, report.pid);
  if (report.step && *report.step > 0) who += fmt::format(", step {}", *report.step);
  Block block(who + ")", width);
  block.add("what", report.cause, kCauseLines);
  block.add("job", report.job);
  block.add("where", report.where);
  block.add("with", report.with);
  block.add("others", describe_others(report));
  block.add("exit", fmt::format("{}", report.exit));
  block.add("log", report.log);
  block.add("do", report.advice);
  block.add("hint", report.hint);
  return block.take();
}

std::string format_json(const FailureReport& report) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json json;
  json["rank"] = report.rank;
  json["host"] = report.host;
  json["pid"] = report.pid;
  json["step"] = report.step ? nlohmann::ordered_json(*report.step) : nlohmann::ordered_json();
  json["op"] = text_or_null(report.op);
  json["phase"] = text_or_null(report.phase);
  json["cause"] = report.cause;
  json["exit"] = report.exit;
  json["job"] = text_or_null(report.job);
  json["where"] = text_or_null(report.where);
  json["with"] = text_or_null(report.with);
  json["log"] = report.log;
  json["advice"] = report.advice;
  json["hint"] = text_or_null(report.hint);
  json["alike"] = report.alike;
  json["victims"] = report.victims;
  json["waited"] = report.waited;
  // Foreign bytes may be no UTF-8: they are replaced, never an exception.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

FailureReport describe_timeout(Duration timeout, std::span<const RankEnd> ends,
                               const ReportContext& context) {
  FailureReport report;
  report.host = context.host;
  report.exit = kTimeoutExit;
  report.cause = fmt::format("still running at --timeout {}", format_span(timeout));
  for (const RankEnd& end : ends) {
    if (end.ended && !end.stopped) continue;
    if (report.rank >= 0) {
      report.victims.push_back(end.rank);
      continue;
    }
    report.rank = end.rank;
    report.pid = end.pid;
    add_flight(end, context.now, report);
  }
  report.log = fmt::format("{}/rank-{}.log", context.log_dir, std::max(0, report.rank));
  report.advice = "look for the rank that does something else than the others";
  return report;
}

std::string format_timeout_block(Duration timeout, std::span<const RankEnd> ends,
                                 const ReportContext& context, size_t width) {
  std::vector<int> running;
  std::vector<int> ended;                         // Well: a failure would have ended the job.
  std::map<std::string, std::vector<int>> doing;  // what -> ranks
  for (const RankEnd& end : ends) {
    if (end.ended && !end.stopped) {
      ended.push_back(end.rank);
      continue;
    }
    running.push_back(end.rank);
    std::string what = "no call of corro.init() yet";
    if (end.flight) {
      what = end.flight->step > 0 ? fmt::format("step {}, ", end.flight->step) : "";
      what += describe_progress(*end.flight, context.now);
    }
    doing[what].push_back(end.rank);
  }
  Block block(fmt::format("corro: stopped on {} at --timeout {}; still running: {}", context.host,
                          format_span(timeout), format_ranks(running)),
              width);
  constexpr size_t kLastLines = 4;
  for (const auto& [what, ranks] : doing) {
    if (block.lines() + kLastLines >= kMaxBlockLines) {
      block.add_line("  ...");
      break;
    }
    block.add_line(fmt::format("  {}: {}", format_ranks(ranks), what));
  }
  if (!ended.empty()) block.add_line(fmt::format("  {}: ended with status 0", format_ranks(ended)));
  block.add("exit", fmt::format("{}", kTimeoutExit));
  block.add("logs", context.log_dir);
  return block.take();
}

}  // namespace corro::diagnosis
