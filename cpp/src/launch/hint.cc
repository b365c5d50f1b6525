#include "launch/hint.h"

#include <fmt/format.h>

#include <cctype>

namespace corro::launch {
namespace {

bool belongs_to_option(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/// Whether the text has the option as a whole word.
bool mentions(const std::string& text, const std::string& option) {
  for (size_t at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const size_t end = at + option.size();
    const bool begins = at == 0 || !belongs_to_option(text[at - 1]);
    if (begins && (end == text.size() || !belongs_to_option(text[end]))) return true;
  }
  return false;
}

std::string hint_about_options(const RunOptions& options, const diagnosis::Crash& crash) {
  for (const MisplacedOption& misplaced : options.misplaced) {
    const bool plain = misplaced.is_ranks && !options.ranks;
    if (!plain && !mentions(crash.error, misplaced.name) &&
        !mentions(crash.last_line, misplaced.name)) {
      continue;
    }
    return fmt::format("{} went to the program; if it was for corro: corro run {} {} ...",
                       misplaced.words, misplaced.words, options.command[0]);
  }
  return "";
}

std::string hint_about_python(const Command& command, const diagnosis::Crash& crash) {
  if (command.other_python.empty()) return "";
  if (crash.last_line.find("No module named ") == std::string::npos) return "";
  return fmt::format("that was {}; leave `{}` out, and `corro run` takes {}", command.program,
                     command.arguments[0], command.other_python);
}

}  // namespace

std::string hint_about(const LaunchPlan& plan, const diagnosis::Crash& crash) {
  const std::string hint = hint_about_options(plan.options, crash);
  return hint.empty() ? hint_about_python(plan.command, crash) : hint;
}

}  // namespace corro::launch
