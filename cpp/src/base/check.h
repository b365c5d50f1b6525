// CORRO_CHECK: a broken contract inside corro or by its caller in the same process.
//
//   CORRO_CHECK(rank < size, rank, size);
//   // throws ContractError: "cpp/src/...:12: rank < size (7, 4)"
//
// Data from a peer is never a contract: it gets a Status. Only thread mains, RPC dispatch and the
// bindings catch ContractError.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace corro {

class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_contract_error(std::string_view condition, const std::string& values,
                                       std::source_location where);

inline std::string describe_values() { return {}; }
template <typename... Values>
std::string describe_values(const Values&... values) {
  std::string text;
  ((text += fmt::format("{}{}", text.empty() ? "" : ", ", values)), ...);
  return text;
}

}  // namespace corro

#define CORRO_CHECK(condition, ...)                                                    \
  do {                                                                                 \
    if (!(condition)) [[unlikely]] {                                                   \
      ::corro::throw_contract_error(#condition, ::corro::describe_values(__VA_ARGS__), \
                                    std::source_location::current());                  \
    }                                                                                  \
  } while (false)
