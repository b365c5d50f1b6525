// What an event of the supervisor's epoll is about: the key under which a descriptor is added.
#pragma once

#include <cstdint>

namespace corro::agent {

enum class Source : uint32_t { kSignals, kChildren, kAgent, kRoom, kOut, kErr };

constexpr uint64_t key_of(Source source, int rank = 0) {
  return static_cast<uint64_t>(source) << 32U | static_cast<uint32_t>(rank);
}
constexpr Source source_of(uint64_t key) { return static_cast<Source>(key >> 32U); }
constexpr int rank_of(uint64_t key) { return static_cast<int>(key & 0xFFFFFFFFU); }

}  // namespace corro::agent
