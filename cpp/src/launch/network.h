// A range of addresses, as --network names it.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace corro::launch {

/// "10.0.0.0/8" or "fd00::/8". Immutable value.
class Network {
 public:
  /// INVALID_ARGUMENT unless it is an address, a slash and a number of bits.
  static Result<Network> parse(std::string_view text);
  /// Whether a numeric address of the same family is in it; false for what is none.
  [[nodiscard]] bool has(const std::string& address) const;

 private:
  int family_ = 0;
  std::array<std::byte, 16> prefix_{};
  int bits_ = 0;
};

}  // namespace corro::launch
