// What a job's object and its pods say to a user. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "kube/client/json.h"

namespace corro::kube {

struct JobFacts {
  bool runs = false;     ///< Its ranks may run: enough pods do.
  bool is_over = false;  ///< For good.
  bool has_succeeded = false;
  bool was_too_long = false;   ///< It has failed by activeDeadlineSeconds.
  bool is_wrong = false;       ///< The API server refuses its pods for what they are.
  std::string waits_for = {};  ///< Why it does not run, or not with all pods; "": nothing.
  std::string why = {};        ///< It has failed, or is wrong.
};
[[nodiscard]] JobFacts facts_of(const Json& job);

/// Workers come and go while its ranks run.
[[nodiscard]] bool is_elastic(const Json& job);

using PodsByName = std::map<std::string, Json>;

/// The newest head whose container runs or has ended; null if there is none.
[[nodiscard]] const Json* newest_head(const PodsByName& pods);
[[nodiscard]] int generation_of(const Json& pod);

/// The ranks' exit status, as far as pods tell it: an elastic job's head ends with it, and so do
/// the workers of others. None: no pod has ended so.
[[nodiscard]] std::optional<int> exit_status_of(const Json& job, const PodsByName& pods);

}  // namespace corro::kube
