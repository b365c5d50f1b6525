#include "app/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <utility>

#include "base/nearest_name.h"

namespace corro::app {
namespace {

/// The first option that the command does not have, or the first argument that is too much;
/// `parsed` is what parsed, the command or one above it.
std::string describe_extras(const CLI::App& parsed, const Command& command) {
  const std::vector<std::string> extras = parsed.remaining(true);
  const auto option = std::ranges::find_if(
      extras, [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); });
  if (option == extras.end()) {
    return fmt::format("unexpected argument {}", fmt::join(extras, " "));
  }
  const std::string name = option->substr(0, option->find('='));
  std::string what = "unknown option " + name;
  if (command.words == "corro run") what += " (the program's own options come after the program)";
  std::set<std::string> known;
  for (const CLI::Option* each : command.options.get_options()) {
    if (each->get_group().empty()) continue;  // Not for users.
    for (const std::string& longer : each->get_lnames()) known.insert("--" + longer);
  }
  const std::string nearest = completed_or_nearest_name(name, known);
  return nearest.empty() ? what : fmt::format("{}; did you mean {}?", what, nearest);
}

/// The command that a mistake belongs to.
Command find_innermost(const CLI::App& program, const std::vector<std::string>& arguments) {
  std::string words = "corro";
  const CLI::App* command = &program;
  for (const std::string& argument : arguments) {
    const CLI::App* inner = find_command(*command, argument);
    if (inner == nullptr) break;
    command = inner;
    words += " " + argument;
  }
  return {*command, std::move(words)};
}

/// In CLI11's order, from the back. It takes the next word for the value of `--name=`; as two words
/// that is what was meant.
std::vector<std::string> from_the_back(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    words.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace

const CLI::App* find_command(const CLI::App& program, const std::string& name) {
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

Status usage_error(const CLI::App& parsed, const Command& command, const CLI::ParseError& error) {
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    what = describe_extras(parsed, command);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    what = "not a number" + what.substr(std::min(what.size(), what.find(':')));
  }
  if (what.starts_with("--np: ")) what.erase(0, 1);  // as parse_ranks() calls it
  for (char& c : what) c = c == '\n' ? ' ' : c;
  return {Code::kInvalidArgument, fmt::format("{}: {}{} see {} --help", command.words, what,
                                              what.ends_with('?') ? "" : ";", command.words)};
}

CLI::Validator number_in(double least, std::optional<double> most) {
  const std::string bounds =
      most ? fmt::format("{} to {}", least, *most) : fmt::format("{} or more", least);
  const auto check = [least, most, bounds](const std::string& word) {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(word, number);
    const bool fits = is_number && number >= least && !(most && number > *most);
    return fits ? std::string() : fmt::format("give {}, not {}", bounds, word);
  };
  return {check, bounds};
}

Result<std::optional<std::string>> parse_words(CLI::App& program,
                                               const std::vector<std::string>& arguments) {
  try {
    program.parse(from_the_back(arguments));
  } catch (const CLI::CallForHelp&) {
    return std::optional(program.help());  // of the subcommand, if one was given
  } catch (const CLI::ParseError& error) {
    return usage_error(program, find_innermost(program, arguments), error);
  }
  return std::optional<std::string>();
}

}  // namespace corro::app
