// The two streams on which a program prints.
#pragma once

#include <cstdint>

namespace corro::io {

enum class Output : uint8_t { kOut, kErr };

}  // namespace corro::io
