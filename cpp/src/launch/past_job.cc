#include "launch/past_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "dashboard/replay.h"
#include "io/files.h"
#include "launch/showroom.h"

namespace corro::launch {
namespace {

namespace fs = std::filesystem;

/// Twice what a launcher writes: one that goes on with another's job writes into the same file.
constexpr size_t kMostBytes = 2 * dashboard::kMostHistoryBytes;

fs::path file_of(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? fs::path(path) / dashboard::kHistoryFile
                                         : fs::path(path);
}

Result<dashboard::History> read_history(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    return Status(Code::kNotFound,
                  fmt::format("{}: there is no such file; give the folder of a job's logs, such as "
                              "corro-runs/20260101-120000-train",
                              file.string()));
  auto text = io::read_file(file, kMostBytes);
  if (!text.ok()) return text.status().with_context(file.string());
  auto history = dashboard::History::read(std::move(*text));
  if (!history.ok()) return history.status().with_context(file.string());
  return history;
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

Status show_past_job(const PastJobOptions& options,
                     const std::function<void(const std::string&)>& say) {
  const fs::path file = file_of(options.path);
  CORRO_ASSIGN(dashboard::History history, read_history(file));
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // The server's thread has the same mask.
  CORRO_ASSIGN(Showroom room, Showroom::create("--address", options.address));
  CORRO_ASSIGN(const auto shown, room.open_past(file.parent_path(), std::move(history)));
  say(room.take_news(host_name()));
  int signal = 0;
  sigwait(&ends, &signal);
  return {};
}

}  // namespace corro::launch
