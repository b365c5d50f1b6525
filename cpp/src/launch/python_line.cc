#include "launch/python_line.h"

#include <string_view>

namespace corro::launch {
namespace {

constexpr std::string_view kFlags = "bBdEiIOPqRsSuvx";
constexpr std::string_view kWithValue = "WX";

/// What one word of the options says: go on, skip the next one too, or the end of the options.
enum class Word { kOption, kTakesNext, kModule, kOther };

/// Reads flags that stand together: "-uB", "-Wignore", "-um". `value` is what follows in the word.
Word read_flags(std::string_view word, std::string& value) {
  for (size_t i = 1; i < word.size(); ++i) {
    value = word.substr(i + 1);
    if (kWithValue.find(word[i]) != std::string_view::npos)
      return value.empty() ? Word::kTakesNext : Word::kOption;
    if (word[i] == 'm') return Word::kModule;
    if (kFlags.find(word[i]) == std::string_view::npos) return Word::kOther;
  }
  return Word::kOption;
}

}  // namespace

bool is_python(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  constexpr std::string_view kPython = "python";
  return name.starts_with(kPython) &&
         name.find_first_not_of("0123456789.", kPython.size()) == std::string::npos;
}

std::optional<PythonTarget> python_target(const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with('-')) return PythonTarget{.name = word};
    std::string value;
    const bool is_short = word.size() > 1 && word[1] != '-';
    const Word kind = word == "--check-hash-based-pycs" ? Word::kTakesNext
                      : is_short                        ? read_flags(word, value)
                                                        : Word::kOther;
    if (kind == Word::kOther) return std::nullopt;
    if (kind == Word::kTakesNext) ++i;
    if (kind != Word::kModule) continue;
    if (value.empty() && i + 1 < arguments.size()) value = arguments[i + 1];
    return value.empty() ? std::nullopt
                         : std::optional(PythonTarget{.name = value, .module = true});
  }
  return std::nullopt;
}

}  // namespace corro::launch
