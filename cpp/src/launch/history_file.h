// history.jsonl in the folder of the logs: what the dashboard shows of the job, for `corro dash`.
#pragma once

#include <string>

#include "dashboard/history.h"
#include "launch/appended_file.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. The first failure (a full disk) is returned, later ones are not; after it nothing
/// more is written.
class HistoryFile {
 public:
  /// Opens the file in the folder of the logs, which is there. The failure says what to do: --log-dir.
  static Result<HistoryFile> create(const LaunchPlan& plan, UnixTime started);

  /// A picture is wanted.
  [[nodiscard]] bool due(UnixTime now) const { return writer_.due() <= now; }
  [[nodiscard]] Status hear(const dashboard::Happening& happening);
  [[nodiscard]] Status show(const dashboard::JobPicture& picture, UnixTime now);
  /// How the job has ended.
  [[nodiscard]] Status end(const dashboard::JobPicture& picture, UnixTime now);

 private:
  Status append(const std::string& lines);

  AppendedFile file_;
  dashboard::HistoryWriter writer_;
  bool failed_ = false;
};

}  // namespace corro::launch
