// LivenessNews: what ranks tell each other on connections for liveness. Bytes: docs/wire.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace corro::wire {

struct LivenessNews {
  int32_t host = -1;     ///< Lost, by the number of its lowest rank.
  int32_t witness = -1;  ///< The rank whose kernel got no answer.
};

inline constexpr size_t kLivenessNewsBytes = 12;
using RawLivenessNews = std::array<std::byte, kLivenessNewsBytes>;
[[nodiscard]] RawLivenessNews encode_liveness_news(const LivenessNews& news);
/// INVALID_ARGUMENT unless encode_liveness_news wrote it. The ranks may be any.
[[nodiscard]] Result<LivenessNews> decode_liveness_news(BytesView bytes);

}  // namespace corro::wire
