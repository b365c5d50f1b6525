#include "agent/membership.h"

#include <fmt/format.h>

#include "wire/server_number.h"

namespace corro::agent {
namespace {

Status refuse(uint32_t epoch, const std::string& why) {
  return {Code::kInvalidArgument, fmt::format("MEMBERS of epoch {}: {}", epoch, why)};
}

/// What is wrong with one of them; the list is in the order of ranks.
Status check_member(uint32_t epoch, size_t place, const Member& member, size_t hosts) {
  if (member.rank < 0 || static_cast<size_t>(member.rank) != place)
    return refuse(epoch, fmt::format("rank {} stands at place {}", member.rank, place));
  if (member.incarnation == 0)
    return refuse(epoch, fmt::format("rank {} has no incarnation", member.rank));
  if (member.host < 0 || static_cast<size_t>(member.host) >= hosts)
    return refuse(epoch, fmt::format("rank {} is on host {}, and there are {}", member.rank,
                                     member.host, hosts));
  return {};
}

}  // namespace

Status Membership::announce(uint32_t epoch, const Members& members) {
  if (is_over(epoch)) return refuse(epoch, fmt::format("epoch {} has begun", epoch_));
  std::map<MemberUuid, Member> listed;
  for (size_t place = 0; place < members.members.size(); ++place) {
    const Member& member = members.members[place];
    CORRO_TRY(check_member(epoch, place, member, members.hosts.size()));
    const auto [known, is_new] = listed.emplace(member.uuid, member);
    if (!is_new)
      return refuse(epoch,
                    fmt::format("ranks {} and {} are one member", known->second.rank, member.rank));
  }
  if (announced_ && epoch == epoch_ && listed != members_)
    return {Code::kAlreadyExists, fmt::format("MEMBERS of epoch {} was said before", epoch)};
  epoch_ = epoch;
  announced_ = true;
  hosts_ = members.hosts;
  members_ = std::move(listed);
  return {};
}

const Member* Membership::find(const Subject& about) const {
  const auto found = members_.find(about.member);
  const bool is_ahead = about.epoch > epoch_ && about.epoch != kNoEpochYet;
  if (found == members_.end() || is_ahead) return nullptr;
  return about.incarnation >= found->second.incarnation ? &found->second : nullptr;
}

bool Membership::admits(const Subject& about) const {
  return !announced_ || about.epoch > epoch_ || wire::is_server(about.rank) ||
         find(about) != nullptr;
}

std::string Membership::host_of(const Subject& about) const {
  const Member* member = find(about);
  if (member == nullptr || hosts_.size() < 2) return "";
  return hosts_[static_cast<size_t>(member->host)];
}

}  // namespace corro::agent
