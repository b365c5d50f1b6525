#include "app/planning/whole_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace corro::app {
namespace {

namespace fs = std::filesystem;

Status write_file(const std::string& path, std::string_view text, const std::string& shown) {
  FILE* file = fopen(path.c_str(), "wbe");
  if (file == nullptr) return status_from_errno(shown, errno);
  int error = fwrite(text.data(), 1, text.size(), file) == text.size() ? 0 : errno;
  if (fclose(file) != 0 && error == 0) error = errno;
  return error == 0 ? Status() : status_from_errno(shown, error);
}

/// Where a file is written first; "" if it is written to as it is.
std::string draft_of(const std::string& path) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) return "";
  return fmt::format("{}.{}.draft", path, getpid());
}

}  // namespace

Status write_files(const std::vector<OutputFile>& files) {
  Status status;
  std::vector<std::string> drafts;
  for (const OutputFile& file : files) {
    drafts.push_back(draft_of(file.path));
    if (!drafts.back().empty()) status = write_file(drafts.back(), file.text, file.path);
    if (!status.ok()) break;
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    const OutputFile& file = files[i];
    if (drafts[i].empty()) {
      if (status.ok()) status = write_file(file.path, file.text, file.path);
    } else if (!status.ok()) {
      (void)remove(drafts[i].c_str());
    } else if (rename(drafts[i].c_str(), file.path.c_str()) != 0) {
      status = status_from_errno(file.path, errno);
      (void)remove(drafts[i].c_str());
    }
  }
  return status;
}

Status print_text(std::string_view text) {
  const bool written = fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && fflush(stdout) == 0) return {};
  return status_from_errno("standard output", errno);
}

}  // namespace corro::app
