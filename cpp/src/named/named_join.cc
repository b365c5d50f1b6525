#include "named/named_join.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace corro::named {

std::string describe_unsupported(OpKind kind, const std::string& name, int32_t absent) {
  std::string verb(name_of(kind));
  verb[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(verb[0])));
  return fmt::format(
      "{} is not supported with Join at this time. Rank {} has joined without named operation "
      "\"{}\"; only allreduce goes on without it",
      verb, absent, name);
}

void JoinRound::add(size_t rank, bool has_gaps) {
  joined_[rank] = true;
  ++count_;
  last_ = rank;
  if (has_gaps) unnoted_.emplace(rank, std::vector<bool>(joined_.size()));
}

bool JoinRound::note(size_t member, size_t rank) {
  const auto found = unnoted_.find(rank);
  if (found == unnoted_.end()) return false;
  std::vector<bool>& noted = found->second;
  noted[member] = true;
  if (std::find(noted.begin(), noted.end(), false) != noted.end()) return false;
  unnoted_.erase(found);
  return true;
}

void MemberJoin::add(int32_t rank, uint64_t first_gap) {
  joined.push_back(rank);
  if (first_gap != kNoGap) gaps_.push_back(first_gap);
}

int32_t MemberJoin::absent_from(uint64_t op) const {
  return static_cast<int32_t>(
      std::count_if(gaps_.begin(), gaps_.end(), [op](uint64_t gap) { return gap <= op; }));
}

}  // namespace corro::named
