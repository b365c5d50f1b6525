#include "launch/history_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace corro::launch {

Result<HistoryFile> HistoryFile::create(const LaunchPlan& plan, UnixTime started) {
  const Earlier earlier = plan.resumed ? Earlier::kKept : Earlier::kDropped;
  HistoryFile made;
  const std::string path = fmt::format("{}/{}", plan.job.log_dir, dashboard::kHistoryFile);
  CORRO_ASSIGN(made.file_, AppendedFile::create(path, "--log-dir", earlier));
  CORRO_TRY(made.append(
      made.writer_.begin({.job = plan.job.job_id,
                          .command = fmt::format("{}", fmt::join(plan.options.command, " ")),
                          .started = started})));
  return made;
}

Status HistoryFile::hear(const dashboard::Happening& happening) {
  return append(writer_.hear(happening));
}

Status HistoryFile::show(const dashboard::JobPicture& picture, UnixTime now) {
  return append(writer_.show(picture, now));
}

Status HistoryFile::end(const dashboard::JobPicture& picture, UnixTime now) {
  return append(writer_.end(picture, now));
}

Status HistoryFile::append(const std::string& lines) {
  if (failed_) return {};
  Status status = file_.append(lines);
  failed_ = !status.ok();
  return status;
}

}  // namespace corro::launch
