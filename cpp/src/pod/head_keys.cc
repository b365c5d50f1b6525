#include "pod/head_keys.h"

#include <fmt/format.h>

#include "secure/token.h"

namespace corro::pod {

Result<secure::Key> read_head_key(const PodSettings& settings) {
  if (settings.identity.member != secure::kHeadMember)
    return Status(Code::kInvalidArgument, "CORRO_MEMBER is not head");
  return secure::read_token(settings.token);
}

secure::Tls::FindKey keys_of_members(const PodSettings& settings) {
  return [&settings](const secure::PodIdentity& who) -> Result<secure::Key> {
    if (who.job_uid != settings.identity.job_uid)
      return Status(Code::kPermissionDenied,
                    fmt::format("{} is of job {}", who.member, who.job_uid));
    CORRO_ASSIGN(const secure::Key part, secure::read_token(settings.token, who.part));
    return secure::derive_member_key(part, who.job_uid, who.member);
  };
}

}  // namespace corro::pod
