// How every program of corro reads its command line: CLI11's description, and mistakes in one line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
class ParseError;
class Validator;
}  // namespace CLI

namespace corro::app {

/// A command as CLI11 has it, and how a user spells it: "corro plan fit".
struct Command {
  const CLI::App& options;
  std::string words;
};

/// The command of `program` of this name; null if there is none.
[[nodiscard]] const CLI::App* find_command(const CLI::App& program, const std::string& name);

/// INVALID_ARGUMENT in one line out of CLI11's words, which may be several. `parsed` is what failed
/// to parse: the command, or one above it.
[[nodiscard]] Status usage_error(const CLI::App& parsed, const Command& command,
                                 const CLI::ParseError& error);

/// Lets numbers from `least` to `most` through; without `most` all that are not less.
[[nodiscard]] CLI::Validator number_in(double least, std::optional<double> most = std::nullopt);

/// Parses the arguments after the program's name into what the program's description fills.
/// Returns the help if that was asked for.
[[nodiscard]] Result<std::optional<std::string>> parse_words(
    CLI::App& program, const std::vector<std::string>& arguments);

}  // namespace corro::app
