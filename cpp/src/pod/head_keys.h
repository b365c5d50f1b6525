// The keys of a job's members, as its head knows them.
#pragma once

#include "pod/settings.h"
#include "secure/tls_stream.h"

namespace corro::pod {

/// The own key of a head. What is wrong with its member or token is said so, and not to whoever dials
/// first. Blocks on the file.
[[nodiscard]] Result<secure::Key> read_head_key(const PodSettings& settings);

/// The key of whoever dials, as its part of the Secret has it: a later part may come later. Blocks
/// on its file; `settings` outlive it.
[[nodiscard]] secure::Tls::FindKey keys_of_members(const PodSettings& settings);

}  // namespace corro::pod
