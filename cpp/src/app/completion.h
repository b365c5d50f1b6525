// Shell completion, written from the description of the command line.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// `shell` is bash, zsh or fish. The output is to be sourced, for example
/// source <(corro completion bash).
[[nodiscard]] std::string write_completion(const CLI::App& program, const std::string& shell);

}  // namespace corro::app
