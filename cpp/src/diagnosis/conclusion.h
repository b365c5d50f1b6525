// How a job ended: the exit status, and what is said about it. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "diagnosis/report.h"
#include "diagnosis/verdict.h"

namespace corro::diagnosis {

struct JobEnd {
  std::span<const RankEnd> ranks;
  std::optional<int> asked;         ///< The first signal by which the user asked the job to stop.
  std::optional<Duration> timeout;  ///< Set if --timeout ended the job.
  bool last = false;                ///< It has ended with its last epoch, as it was asked to.
  std::string no_way_on = {};       ///< Why an elastic job was stopped; "": it was not.
  bool lost_host_last =
      false;         ///< The last rank that was lost was lost with its host, or none was.
  size_t width = 0;  ///< Of the block's lines.
};

struct Conclusion {
  int exit = 0;
  std::string text;                      ///< The block, or one line; "" when all went well.
  std::optional<FailureReport> failure;  ///< For failure.json.
  bool by_hosts = false;  ///< Hosts were lost, or have left: no rank has failed by itself.
};

/// True if the rank ended as the signal that the user sent asked it to.
[[nodiscard]] bool ended_as_asked(const RankEnd& end, std::optional<int> asked);

[[nodiscard]] Conclusion conclude(const JobEnd& job, const ReportContext& context);

}  // namespace corro::diagnosis
