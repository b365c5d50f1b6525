// The keys of a job's members, as its head knows them.
#pragma once

#include "pod/settings.h"
#include "secure/tls_stream.h"

namespace corro::pod {

/// The key of whoever dials, as its part of the Secret has it: a later part may come later. Blocks
/// on its file; `settings` outlive it.
[[nodiscard]] secure::Tls::FindKey keys_of_members(const PodSettings& settings);

}  // namespace corro::pod
