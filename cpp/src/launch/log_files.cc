#include "launch/log_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

namespace corro::launch {
namespace {

constexpr std::string_view kLogDir = "--log-dir";

/// N of "rank-N.log" and "rank-N.error.json"; -1 for other names.
int rank_of_file(std::string_view name) {
  constexpr std::string_view kRank = "rank-";
  if (!name.starts_with(kRank)) return -1;
  name.remove_prefix(kRank.size());
  int rank = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  const std::string_view rest = name.substr(static_cast<size_t>(stop - name.data()));
  const bool ours = error == std::errc() && (rest == ".log" || rest == ".error.json");
  return ours ? rank : -1;
}

/// An earlier job's files would look like this one's: those of ranks that it has not, too.
void remove_files(const std::string& directory, int ranks) {
  std::error_code ignored;
  unlink((directory + "/failure.json").c_str());
  for (int rank = 0; rank < ranks; ++rank)
    unlink(fmt::format("{}/rank-{}.error.json", directory, rank).c_str());
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (rank_of_file(entry.path().filename().native()) >= ranks) unlink(entry.path().c_str());
  }
}

}  // namespace

Result<LogFiles> LogFiles::create(const std::string& directory, int ranks, Earlier earlier) {
  LogFiles logs;
  logs.directory_ = directory;
  CORRO_TRY(make_directories(directory, kLogDir));
  if (earlier == Earlier::kDropped) remove_files(directory, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.log", directory, rank);
    CORRO_ASSIGN(AppendedFile file, AppendedFile::create(path, kLogDir, earlier));
    logs.files_.push_back(std::move(file));
  }
  return logs;
}

Status LogFiles::append(int rank, std::string_view bytes) {
  if (failed_) return {};
  Status status = files_[static_cast<size_t>(rank)].append(bytes);
  failed_ = !status.ok();
  return status;
}

Status LogFiles::write_file(const std::string& name, std::string_view text) const {
  CORRO_ASSIGN(const AppendedFile file, AppendedFile::create(directory_ + "/" + name, kLogDir));
  return file.append(text);
}

}  // namespace corro::launch
