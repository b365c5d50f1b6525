// What `corro jobs`, `logs`, `stop`, `scale` and `autoscale` do.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/unix_time.h"
#include "kube/client/client.h"
#include "kube/user/autoscaler.h"

namespace corro::kube {

/// A table of jobs, the newest first; "" of none. Pure.
[[nodiscard]] std::string table_of_jobs(const std::vector<Json>& jobs, bool with_space,
                                        std::chrono::sys_seconds now);

/// The CorroJobs of a namespace, or of all with "". Blocks.
[[nodiscard]] Result<std::vector<Json>> list_jobs(Client& client, const std::string& space,
                                                  const std::stop_token& stop);

struct LogManner {
  bool follows = false;  ///< Else what there is now.
  std::optional<uint32_t> tail_lines = {};
};
/// Hands on the log of the job's newest head, whose lines are those of its ranks. Blocks; with
/// `follows` until the head ends. NOT_FOUND if there is no such job, or no head yet.
[[nodiscard]] Status show_job_log(Client& client, const ObjectKey& job, const LogManner& manner,
                                  const std::function<void(std::string_view)>& show,
                                  const std::stop_token& stop);

/// Deletes the job: its pods are asked to end. Blocks until that is written.
[[nodiscard]] Status stop_job(Client& client, const ObjectKey& job, const std::stop_token& stop);

/// Sets the number of worker pods that the job is to have. INVALID_ARGUMENT in the API server's
/// words for one that is beyond the job's limits.
[[nodiscard]] Status scale_job(Client& client, const ObjectKey& job, int workers,
                               const std::stop_token& stop);

/// Looks at the job every five seconds and sets the number of its pods, until it ends; calls `say`
/// with each change and its reason. Blocks. Failures of the API server that may heal are said, and
/// it goes on.
[[nodiscard]] Status autoscale_job(Client& client, const ObjectKey& job,
                                   const AutoscalerOptions& options,
                                   const std::function<void(const std::string&)>& say,
                                   const std::stop_token& stop);

}  // namespace corro::kube
