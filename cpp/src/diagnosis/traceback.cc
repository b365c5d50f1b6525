#include "diagnosis/traceback.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace corro::diagnosis {
namespace {

constexpr std::string_view kFatal = "Fatal Python error: ";
constexpr std::string_view kTerminate = "terminate called after throwing";
constexpr size_t kMaxDetailsLines = 6;
/// What TensorFlow says first of an error in a graph. The reason comes behind the frames that have
/// made the graph.
constexpr std::string_view kGraphError = "Graph execution error:";

/// Takes away one of what without_rank() does.
std::string_view without_one_rank(std::string_view line) {
  constexpr std::string_view kRank = "[rank";
  constexpr std::string_view kEnd = "]: ";
  if (!line.starts_with(kRank)) return line;
  const size_t end = line.find_first_not_of("0123456789", kRank.size());
  if (end == kRank.size() || end == std::string_view::npos) return line;
  return line.substr(end).starts_with(kEnd) ? line.substr(end + kEnd.size()) : line;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(without_rank(line));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// Takes away what exception groups draw in front of a line: "  | ", "  +-+-----".
std::string_view without_margin(std::string_view line) {
  const size_t bar = line.find_first_not_of(' ');
  if (bar == std::string_view::npos || (line[bar] != '|' && line[bar] != '+')) return line;
  const size_t text = line.find_first_of('|', bar);
  if (text == std::string_view::npos) return line;
  return line.substr(text + 1).starts_with(' ') ? line.substr(text + 2) : line.substr(text + 1);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_marker(std::string_view code) {  // "    ~~~~~^^^^^" under a source line
  return code.find_first_not_of("~^ ") == std::string_view::npos;
}

/// JAX's, above what it says of its tracebacks.
constexpr std::string_view kRule = "--------------------";

/// Whether the lines of a message end before this one: a progress bar is none of them either.
bool ends_message(std::string_view line) {
  return line == kRule || trimmed(line).empty() ||
         line.find(kTraceback) != std::string_view::npos ||
         line.find('\r') != std::string_view::npos || begins_other_error(line);
}

/// The lines of a message from `first` on, without their indent; `grouped`: those with a margin.
std::vector<std::string_view> read_message(const std::vector<std::string_view>& lines, size_t first,
                                           bool grouped) {
  std::vector<std::string_view> message;
  size_t indented = 0;  // At its beginning.
  size_t others = 0;
  for (size_t i = first; i < lines.size(); ++i) {
    const std::string_view line = grouped ? without_margin(lines[i]) : lines[i];
    if (ends_message(line) || (grouped && line.size() == lines[i].size())) break;
    const bool is_indented = line[0] == ' ' || line[0] == '\t';
    if (!is_indented && ++others > kMaxMessageLines) {
      message.resize(indented);
      break;
    }
    message.push_back(trimmed(line));
    if (others == 0) indented = message.size();
  }
  return message;
}

/// Joins the lines in one, cut between characters.
std::string join_details(const std::vector<std::string_view>& lines) {
  std::string details;
  for (size_t i = 0; i < std::min(lines.size(), kMaxDetailsLines); ++i) {
    details.append(i == 0 ? "" : " ").append(lines[i]);
  }
  if (details.size() <= kMaxDetailsBytes) {
    return lines.size() > kMaxDetailsLines ? details + " ..." : details;
  }
  size_t end = kMaxDetailsBytes;
  while (end > 0 && (static_cast<unsigned char>(details[end]) & 0xC0U) == 0x80U) --end;
  return details.substr(0, end) + "...";
}

/// Said before the traceback of an exception that ended nothing: in a destructor, in a log handler.
bool is_harmless(std::string_view line_before) {
  return line_before.starts_with("Exception ignored in") ||
         line_before.starts_with("--- Logging error ---");
}

/// What torch's futures wrap around an error that a callback has raised, as DDP's gradients meet
/// it.
std::string_view without_wrapper(std::string_view error) {
  constexpr std::string_view kWrapper =
      "RuntimeError: Got the following error when running the callback: ";
  return error.starts_with(kWrapper) ? error.substr(kWrapper.size()) : error;
}

/// TensorFlow puts a function of its own in front of what failed in it: "{{function_node f_8}} ".
std::string without_function(std::string error) {
  constexpr std::string_view kEnd = "}} ";
  const size_t first = error.find("{{function_node ");
  const size_t end = first == std::string::npos ? first : error.find(kEnd, first);
  if (end != std::string::npos) error.erase(first, end + kEnd.size() - first);
  return error;
}

/// The line that says why a graph failed, which stands above the first node's name; 0 if there is
/// none from `first` on.
size_t find_reason(const std::vector<std::string_view>& lines, size_t first) {
  size_t reason = 0;
  for (size_t i = first; i < lines.size(); ++i) {
    const std::string_view line = trimmed(without_margin(lines[i]));
    if (line == kTraceback || begins_other_error(line)) return 0;
    if (line.starts_with("[[{{node ")) return reason;
    if (!line.empty()) reason = i;
  }
  return 0;
}

/// The wrapper that TensorFlow makes of one of corro's operations, from a text.
bool is_made_wrapper(const Frame& frame) {
  return frame.file == "<string>" && frame.function.starts_with("corro_");
}

/// Collects the frames and the exception that follow `first`, the line after "Traceback".
class TracebackReader {
 public:
  explicit TracebackReader(const std::vector<std::string_view>& lines) : lines_(lines) {}

  /// Reads one traceback; the crash keeps what it had if the traceback is cut off.
  void read(size_t first, Crash& crash) {
    Frame user;
    Frame last;
    for (size_t i = first; i < lines_.size(); ++i) {
      const std::string_view line = without_margin(lines_[i]);
      if (auto frame = parse_frame(line)) {
        read_code(i + 1, *frame);
        last = *frame;
        if (is_user_code(last.file) && !is_made_wrapper(last)) user = last;
      } else if (!line.empty() && line[0] != ' ') {
        crash.where = user.file.empty() ? last : user;
        read_error(i, crash);
        return;
      }
    }
  }

 private:
  void read_error(size_t i, Crash& crash) const {
    const std::string_view line = without_margin(lines_[i]);
    const bool grouped = line.size() < lines_[i].size();
    crash.error = without_function(std::string(without_wrapper(trimmed(line))));
    if (crash.error.ends_with(kGraphError)) {
      if (const size_t reason = find_reason(lines_, i + 1); reason > 0) {
        crash.error += " " + std::string(trimmed(without_margin(lines_[reason])));
        i = reason;
      }
    }
    crash.details = join_details(read_message(lines_, i + 1, grouped));
  }

  void read_code(size_t i, Frame& frame) const {
    if (i >= lines_.size()) return;
    const std::string_view line = without_margin(lines_[i]);
    const std::string_view code = trimmed(line);
    if (line.starts_with("    ") && !is_marker(code)) frame.code = code;
  }

  const std::vector<std::string_view>& lines_;
};

/// "Fatal Python error: Segmentation fault", then the stack of the current thread, innermost first.
void read_fatal(const std::vector<std::string_view>& lines, size_t first, Crash& crash) {
  crash.error = lines[first];
  crash.details.clear();
  crash.where = {};
  bool current = false;
  for (size_t i = first + 1; i < lines.size(); ++i) {
    if (lines[i].starts_with("Thread ")) current = false;
    if (lines[i].starts_with("Current thread ")) current = true;
    const auto frame = parse_frame(lines[i]);
    if (!current || !frame) continue;
    if (crash.where.file.empty() || is_user_code(frame->file)) crash.where = *frame;
    if (is_user_code(frame->file)) return;
  }
}

/// "terminate called after throwing an instance of 'std::runtime_error'" / "  what():  text".
void read_terminate(const std::vector<std::string_view>& lines, size_t i, Crash& crash) {
  constexpr std::string_view kWhat = "  what():  ";
  const size_t quote = lines[i].find('\'');
  if (quote == std::string_view::npos) return;
  const size_t end = lines[i].find('\'', quote + 1);
  crash.error = lines[i].substr(quote + 1, end == std::string_view::npos ? end : end - quote - 1);
  crash.details.clear();
  crash.where = {};
  if (i + 1 < lines.size() && lines[i + 1].starts_with(kWhat)) {
    crash.error += ": " + std::string(lines[i + 1].substr(kWhat.size()));
    crash.details = join_details(read_message(lines, i + 2, /*grouped=*/false));
  }
}

}  // namespace

std::string_view without_rank(std::string_view line) {
  for (auto rest = without_one_rank(line); rest != line; rest = without_one_rank(line)) line = rest;
  return line;
}

bool begins_other_error(std::string_view line) {
  return is_harmless(line) || line.starts_with(kFatal) || line.starts_with(kTerminate);
}

bool is_user_code(std::string_view file) {
  for (const std::string_view library :
       {"/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen "}) {
    if (file.find(library) != std::string_view::npos) return false;
  }
  return !file.empty();
}

std::optional<Frame> parse_frame(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  if (!line.starts_with(kFile)) return std::nullopt;
  line.remove_prefix(kFile.size());
  const size_t quote = line.rfind(kLine);
  if (quote == std::string_view::npos) return std::nullopt;
  Frame frame;
  frame.file = line.substr(0, quote);
  line.remove_prefix(quote + kLine.size());
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), frame.line);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (line.starts_with(',')) line.remove_prefix(1);
  if (line.starts_with(" in ")) frame.function = line.substr(4);
  return frame;
}

Frame parse_stack(std::string_view dumps) {
  Frame where;
  for (const std::string_view line : split_lines(dumps)) {
    if (line == "Stack (most recent call first):") where = {};
    const auto frame = parse_frame(line);
    if (!frame || is_user_code(where.file)) continue;
    if (where.file.empty() || is_user_code(frame->file)) where = *frame;
  }
  return where;
}

Crash parse_crash(std::string_view stderr_tail) {
  const auto lines = split_lines(stderr_tail);
  TracebackReader reader(lines);
  Crash crash;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = without_margin(lines[i]);
    if (!trimmed(line).empty()) crash.last_line = trimmed(line);
    if (line.find(kTraceback) != std::string_view::npos) {
      if (i > 0 && is_harmless(lines[i - 1])) continue;
      reader.read(i + 1, crash);
    } else if (line.starts_with("  File \"") && crash.error.empty()) {
      reader.read(i, crash);  // a syntax error in the script itself has no "Traceback" line
    } else if (line.starts_with(kFatal)) {
      read_fatal(lines, i, crash);
    } else if (line.starts_with(kTerminate)) {
      read_terminate(lines, i, crash);
    }
  }
  return crash;
}

}  // namespace corro::diagnosis
