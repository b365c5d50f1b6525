// The streams that a rank writes.
#pragma once

#include <array>
#include <cstdint>

namespace corro::io {

enum class Output : uint8_t {
  kOut,
  kErr,
  kResult,  ///< What a function that corro.run() has called returns; never on the screen.
};

inline constexpr std::array kOutputs = {Output::kOut, Output::kErr, Output::kResult};

}  // namespace corro::io
