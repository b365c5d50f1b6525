#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/choose_job.h"
#include "app/commands.h"

namespace corro::app {
namespace {

Result<std::string> ask_trace(const LookCommand& look) {
  CORRO_ASSIGN(const auto job, choose_job(launch::find_jobs(), look.job, "corro trace"));
  return launch::ask(job, launch::Question::kTrace, kAnswerPatience, look.steps);
}

/// What the trace says about itself.
std::string note_of(const std::string& trace) {
  const auto document = nlohmann::json::parse(trace, nullptr, false);
  return document.is_discarded() ? "" : document["otherData"]["note"].get<std::string>();
}

Status write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool all_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool is_closed = file != nullptr && std::fclose(file) == 0;
  if (all_written && is_closed) return {};
  return status_from_errno("-o " + path, errno);
}

}  // namespace

int trace_command(const LookCommand& look) {
  const auto trace = ask_trace(look);
  const Status written = trace.ok() ? write_file(look.output, *trace) : trace.status();
  if (!written.ok()) {
    complain("corro trace: " + written.message());
    return 1;
  }
  if (const std::string note = note_of(*trace); !note.empty()) complain("corro trace: " + note);
  fmt::print("{}: open it at https://ui.perfetto.dev\n", look.output);
  return 0;
}

}  // namespace corro::app
