#include "coordinator/job_secret.h"

#include "base/env.h"
#include "wire/secret.h"

namespace corro::coordinator {
namespace {

constexpr const char* kPurpose = "coordinator";

}  // namespace

Result<wire::Secret> job_secret(const Variables& environment) {
  CORRO_ASSIGN(const Environment read, read_environment([&](const char* name) {
                 const auto found = environment.find(name);
                 return found == environment.end() ? std::nullopt : std::optional(found->second);
               }));
  if (!read.secret_file.empty()) return wire::read_secret_file(read.secret_file);
  if (!read.user_secret_file.empty()) return wire::user_secret(read.user_secret_file);
  return Status(Code::kFailedPrecondition,
                "a coordinator and its agents need a secret: set HOME, or CORRO_SECRET_FILE to a "
                "file (chmod 600) with the same 64 hexadecimal digits on each host");
}

secure::PodIdentity identity_of(const std::string& host) {
  return {.job_uid = kPurpose, .member = host};
}

secure::Key key_of(const wire::Secret& secret, const std::string& host) {
  return secure::derive_member_key(secret, kPurpose, host);
}

secure::Tls::FindKey keys_of_agents(const wire::Secret& secret) {
  return [secret](const secure::PodIdentity& who) -> Result<secure::Key> {
    if (who == identity_of(who.member)) return key_of(secret, who.member);
    return Status(Code::kPermissionDenied, who.member + " is no host's agent");
  };
}

wire::Secret ranks_secret(const wire::Secret& secret, const std::string& job) {
  return secure::derive_ranks_secret(secret, job);
}

}  // namespace corro::coordinator
