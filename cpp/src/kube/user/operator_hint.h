// OperatorHint: whether a job waits for corro's operator itself, which may not be there at all: a
// cluster can have the definitions of its jobs without it. Then nobody writes a condition, and there
// would be nothing to tell.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "kube/client/json.h"

namespace corro::kube {

/// Pure. Loop-confined.
class OperatorHint {
 public:
  explicit OperatorHint(Time created) : created_(created) {}

  /// Returns a line for people, once: after five seconds in which the job has got no condition; ""
  /// otherwise.
  [[nodiscard]] std::string_view look(const Json& job, Time now);

 private:
  const Time created_;
  bool is_settled_ = false;  ///< An operator has seen the job, or it was said.
};

}  // namespace corro::kube
