// What an agent and its commander say to each other, and what an agent makes of a list of members.
#include <algorithm>

#include "agent/membership.h"
#include "agent/messages.h"
#include "base/check.h"

namespace {

/// A list that is taken has a place for each of its members; another one changes nothing.
void try_list(uint32_t epoch, const corro::agent::Members& members) {
  corro::agent::Membership membership;
  const bool is_list = membership.announce(epoch, members).ok();
  CORRO_CHECK(membership.epoch() == (is_list ? epoch : 0), epoch);
  for (const corro::agent::Member& member : members.members) {
    const corro::agent::Subject about{.epoch = epoch,
                                      .rank = member.rank,
                                      .member = member.uuid,
                                      .incarnation = member.incarnation};
    const corro::agent::Member* found = membership.find(about);
    CORRO_CHECK(is_list ? found != nullptr && *found == member : found == nullptr, member.rank);
    CORRO_CHECK(membership.admits(about), member.rank);
    (void)membership.host_of(about);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = corro::agent::decode_message(bytes);
  if (!message.ok()) return 0;
  const corro::Bytes again = corro::agent::encode_message(*message);
  CORRO_CHECK(std::ranges::equal(bytes, std::span(again).subspan(sizeof(uint32_t))));
  if (const auto* members = std::get_if<corro::agent::Members>(&message->body))
    try_list(message->about.epoch, *members);
  return 0;
}
