#include "launch/log_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

namespace corro::launch {
namespace {

constexpr std::string_view kLogDir = "--log-dir";

/// N of "rank-N.log" and "rank-N.error.json" if `whose` is "rank-"; -1 for other names.
int number_of_file(std::string_view name, std::string_view whose) {
  if (!name.starts_with(whose)) return -1;
  name.remove_prefix(whose.size());
  int number = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const std::string_view rest = name.substr(static_cast<size_t>(stop - name.data()));
  const bool ours = error == std::errc() && (rest == ".log" || rest == ".error.json");
  return ours ? number : -1;
}

/// An earlier job's files would look like this one's: those of ranks that it has not, too.
void remove_files(const std::string& directory, int ranks, int servers) {
  std::error_code ignored;
  unlink((directory + "/failure.json").c_str());
  for (int rank = 0; rank < ranks; ++rank)
    unlink(fmt::format("{}/rank-{}.error.json", directory, rank).c_str());
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    const bool is_other =
        number_of_file(name, "rank-") >= ranks || number_of_file(name, "server-") >= servers;
    if (is_other) unlink(entry.path().c_str());
  }
}

/// WHOSE-N.log of so many.
Status open_logs(const std::string& directory, std::string_view whose, int count, Earlier earlier,
                 std::vector<AppendedFile>& files) {
  for (int number = 0; number < count; ++number) {
    const std::string path = fmt::format("{}/{}-{}.log", directory, whose, number);
    CORRO_ASSIGN(AppendedFile file, AppendedFile::create(path, kLogDir, earlier));
    files.push_back(std::move(file));
  }
  return {};
}

}  // namespace

Result<LogFiles> LogFiles::create(const std::string& directory, int ranks, int servers,
                                  Earlier earlier) {
  LogFiles logs;
  logs.directory_ = directory;
  CORRO_TRY(make_directories(directory, kLogDir));
  if (earlier == Earlier::kDropped) remove_files(directory, ranks, servers);
  CORRO_TRY(open_logs(directory, "rank", ranks, earlier, logs.files_));
  CORRO_TRY(open_logs(directory, "server", servers, earlier, logs.servers_));
  return logs;
}

/// Servers come while the job runs.
Status LogFiles::open_servers(size_t count) {
  while (servers_.size() < count && !failed_) {
    const std::string path = fmt::format("{}/server-{}.log", directory_, servers_.size());
    auto file = AppendedFile::create(path, kLogDir, Earlier::kDropped);
    failed_ = !file.ok();
    CORRO_TRY(file.status());
    servers_.push_back(std::move(file).value());
  }
  return {};
}

Status LogFiles::append_to(AppendedFile& file, std::string_view bytes) {
  if (failed_) return {};
  Status status = file.append(bytes);
  failed_ = !status.ok();
  return status;
}

Status LogFiles::write_file(const std::string& name, std::string_view text) const {
  CORRO_ASSIGN(const AppendedFile file, AppendedFile::create(directory_ + "/" + name, kLogDir));
  return file.append(text);
}

}  // namespace corro::launch
