#include "pod/ssh_options.h"

#include <fmt/format.h>

#include <string_view>

namespace corro::pod {
namespace {

/// Of ssh(1), what is of no matter here: ways to connect, to prove oneself, to log and to encrypt,
/// and a terminal, which nobody has.
constexpr std::string_view kFlags = "46AaCgKknqTtvXxYy";
constexpr std::string_view kWithValue = "BbcEeFIilmopS";

/// One word of options, "-qp 22"; `at` is its place, and is moved on over a value.
Status read_options(const std::vector<std::string>& words, size_t& at, SshRequest& request) {
  const std::string& word = words[at];
  for (size_t i = 1; i < word.size(); ++i) {
    const char option = word[i];
    request.no_input = request.no_input || option == 'n';
    if (kFlags.find(option) != std::string_view::npos) continue;
    if (kWithValue.find(option) == std::string_view::npos)
      return {Code::kInvalidArgument, fmt::format("option -{} is not supported", option)};
    const bool is_last = i + 1 == word.size();
    if (is_last && ++at == words.size())
      return {Code::kInvalidArgument, fmt::format("option -{} needs a value", option)};
    return {};
  }
  return {};
}

}  // namespace

Result<SshRequest> parse_ssh(const std::vector<std::string>& arguments) {
  SshRequest request;
  size_t at = 0;
  bool takes_options = true;
  // As ssh does: options may come before the host and after it.
  for (; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (takes_options && word == "--") {
      takes_options = false;
    } else if (takes_options && word.size() > 1 && word[0] == '-') {
      CORRO_TRY(read_options(arguments, at, request));
    } else if (request.host.empty()) {
      request.host = word;
    } else {
      break;
    }
  }
  if (request.host.empty()) return Status(Code::kInvalidArgument, "no host is given");
  for (; at < arguments.size(); ++at)
    request.command += (request.command.empty() ? "" : " ") + arguments[at];
  if (request.command.empty())
    return Status(Code::kInvalidArgument, "no command is given; there is no shell to type into");
  return request;
}

}  // namespace corro::pod
