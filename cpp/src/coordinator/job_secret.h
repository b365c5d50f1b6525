// The secret that coordinators and agents of a job share, and what follows from it.
#pragma once

#include <string>

#include "base/status.h"
#include "base/variables.h"
#include "secure/credentials.h"
#include "secure/tls_stream.h"

namespace corro::coordinator {

/// CORRO_SECRET_FILE, else the user's own secret, which is made at the first need. The failure says
/// what to do. Blocks on the file.
[[nodiscard]] Result<wire::Secret> job_secret(const Variables& environment);

/// Who the agent of a host is, and the key by which it proves that.
[[nodiscard]] secure::PodIdentity identity_of(const std::string& host);
[[nodiscard]] secure::Key key_of(const wire::Secret& secret, const std::string& host);
/// The keys of all hosts' agents, for who hears them dial.
[[nodiscard]] secure::Tls::FindKey keys_of_agents(const wire::Secret& secret);

/// That of the job's ranks.
[[nodiscard]] wire::Secret ranks_secret(const wire::Secret& secret, const std::string& job);

}  // namespace corro::coordinator
