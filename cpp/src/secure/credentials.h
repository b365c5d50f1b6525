// The identity of a member of a job, and the keys by which the member proves it.
//
//   the operator   CORRO_ASSIGN(auto data, make_credentials(uid, {"launcher", "worker-0"}));
//                  ... a Secret's stringData: "head", "launcher", "worker-0"
//   a member       reads its own value (token.h)
//   the head       reads "head" of each part, and derive_member_key() gives the key of the member
//                  that dials
//
// A part's "head" is random; all else follows from it. Each part of a large job's Secret has a
// "head" of its own, since the operator that makes a later part cannot read the first.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "wire/bootstrap.h"

namespace corro::secure {

/// A member's key, or that of a part, from which its members' follow.
using Key = wire::Secret;

/// The member that holds a part's own key.
inline constexpr std::string_view kHeadMember = "head";

/// A member's own description in the handshake. Value.
struct PodIdentity {
  std::string job_uid;
  std::string member;       ///< "worker-3", "launcher".
  uint32_t generation = 0;  ///< Which pod of this member it is.
  uint32_t part = 0;        ///< Which part of the Secret its key is from.
  bool operator==(const PodIdentity&) const = default;
};

/// As the handshake carries it: "corro/1 UID MEMBER GENERATION PART".
[[nodiscard]] std::string encode_identity(const PodIdentity& identity);
/// INVALID_ARGUMENT unless encode_identity() writes exactly this: uid and member have 1 to 64
/// letters, digits, dots and hyphens.
[[nodiscard]] Result<PodIdentity> decode_identity(std::string_view text);

/// HMAC-SHA256, by the part's key, of what the key is for, the job's uid and the member.
/// Generations of a member have the same.
[[nodiscard]] Key derive_member_key(const Key& part, std::string_view job_uid,
                                    std::string_view member);

/// The secret of ranks that the job's pods have, made of the first part's key as a member's is.
[[nodiscard]] wire::Secret derive_ranks_secret(const Key& part, std::string_view job_uid);

/// The texts of one part of a job's Secret, by key: "head", fresh and random, and one for each of
/// `members`, of which "head" may be one. INVALID_ARGUMENT for a uid or member that is no name.
[[nodiscard]] Result<std::map<std::string, std::string>> make_credentials(
    std::string_view job_uid, std::span<const std::string> members);

}  // namespace corro::secure
