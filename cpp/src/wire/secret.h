// The job's secret: made by the launcher, handed over by the agent's socket or read from a file of
// the user.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "wire/bootstrap.h"

namespace corro::wire {

/// Returns 32 random bytes from the kernel.
[[nodiscard]] Secret random_secret();

/// Reads 64 hexadecimal digits, spaces and line ends around them allowed. The message never repeats
/// the text.
[[nodiscard]] Result<Secret> parse_secret(std::string_view text);

/// Reads CORRO_SECRET_FILE. PERMISSION_DENIED unless it is a regular file of this user that nobody
/// else may read.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path);

/// Reads the user's own secret, for jobs that no agent gives one; makes it, 0600, if it is missing,
/// with the folders above it. Processes that do so at once agree, also over NFS.
[[nodiscard]] Result<Secret> user_secret(const std::string& path);

}  // namespace corro::wire
