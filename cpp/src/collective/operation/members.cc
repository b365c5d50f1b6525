#include "collective/operation/members.h"

#include <fmt/format.h>

namespace corro::collective {
namespace {

constexpr size_t kMostListed = 16;
constexpr size_t kFirstOfMany = 8;

/// FNV-1a over the ranks, as 32-bit words.
uint64_t digest_of(std::span<const int32_t> ranks) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const int32_t rank : ranks) hash = (hash ^ static_cast<uint32_t>(rank)) * 0x100000001B3;
  return hash;
}

}  // namespace

std::string describe_members(std::span<const int32_t> world_ranks) {
  if (world_ranks.size() <= kMostListed) return fmt::format("[{}]", fmt::join(world_ranks, ", "));
  return fmt::format("[{}, ...] ({} ranks, digest {:016x})",
                     fmt::join(world_ranks.first(kFirstOfMany), ", "), world_ranks.size(),
                     digest_of(world_ranks));
}

Status compare_members(int32_t rank, std::string_view members, int32_t other_rank,
                       std::string_view others) {
  if (members == others) return {};
  return {Code::kInvalidArgument,
          fmt::format("ranks disagree on the members of this group: rank {} made it of {}, rank {} "
                      "of {}: give groups of different ranks different names, and list the ranks "
                      "in the same order everywhere",
                      rank, members, other_rank, others),
          {.rank = other_rank}};
}

}  // namespace corro::collective
