// read_environment() with variables that hold anything: NUL-separated NAME=value pairs, as in
// /proc/<pid>/environ.
#include <map>
#include <string>
#include <string_view>

#include "base/env.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string> variables;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos) {
      variables[std::string(pair.substr(0, equals))] = pair.substr(equals + 1);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto environment =
      corro::read_environment([&variables](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      });
  if (!environment.ok()) return 0;
  CORRO_CHECK(environment->rank.has_value() == environment->size.has_value());
  CORRO_CHECK(!environment->rank || *environment->rank < *environment->size);
  CORRO_CHECK(!environment->timeout || environment->timeout->count() >= 0);
  return 0;
}
