// Times as Kubernetes writes them: 2026-11-24T20:00:00Z.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

[[nodiscard]] std::string time_text(KubeTime time);

/// Reads RFC 3339; fractions of a second are dropped. Nothing for any other text.
[[nodiscard]] std::optional<KubeTime> parse_time(std::string_view text);

/// parse_time() of a field of an object; nothing if there is none.
[[nodiscard]] std::optional<KubeTime> time_in(const Json& object, std::string_view field);

}  // namespace corro::kube
