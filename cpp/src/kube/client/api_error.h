// What an API server says when it refuses. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "kube/client/json.h"

namespace corro::kube {

/// The failure that an object of kind Status tells: its code as of code_of(), its message in one
/// line of at most 2 KiB: "pods default/a: 422 Invalid: Pod \"a\" is invalid: spec.containers:
/// ...". Never ok().
[[nodiscard]] Status error_of(const Json& status, std::string_view name);

/// The same for the answer to a call: `body` may be no Status at all.
[[nodiscard]] Status error_of_answer(int http_status, std::string_view body, std::string_view name);

/// A server's text for a message: control bytes become blanks, and 2 KiB are the most.
[[nodiscard]] std::string on_one_line(std::string text);

}  // namespace corro::kube
