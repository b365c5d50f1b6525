// What an event of the agent's epoll is about: the key under which a descriptor is added.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corro::agent {

enum class Source : uint32_t {
  kCommander,
  kChildren,
  kWorkers,
  kGuard,
  kRoutes,
  kSpeedServer,
  kSpeedTest,
  kOut,
  kErr,
  kResult,
  kInput,
  kBranch,
  kBranchErrors
};

/// `place`: of the rank in its RankGroup, of the branch among the Branches.
constexpr uint64_t key_of(Source source, size_t place = 0) {
  return static_cast<uint64_t>(source) << 32U | static_cast<uint32_t>(place);
}
constexpr Source source_of(uint64_t key) { return static_cast<Source>(key >> 32U); }
constexpr size_t place_of(uint64_t key) { return key & 0xFFFFFFFFU; }

}  // namespace corro::agent
