#include "agent/whereabouts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/processes.h"

namespace corro::agent {
namespace {

constexpr std::string_view kMemfd = "/memfd:corro-stack";
constexpr off_t kMaxStack = 64 << 10;

io::Fd open_stack_of(pid_t pid) {
  std::error_code error;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = readlink(entry->path().c_str(), target.data(), target.size());
    if (length <= 0) continue;
    const std::string_view link(target.data(), static_cast<size_t>(length));
    if (link.starts_with(kMemfd)) return io::Fd(open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
  }
  return {};
}

/// Whether the process has a handler for the signal: without one it would die of it.
bool catches(pid_t pid, int signal) {
  constexpr int kHexadecimal = 16;
  const std::string mask = status_field(pid, "SigCgt");
  return (std::strtoull(mask.c_str(), nullptr, kHexadecimal) >> (signal - 1) & 1U) != 0;
}

/// The line of a source file, without its margin; "" if it cannot be read.
std::string read_source_line(const std::string& path, int line) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::ifstream file(path);
  std::string text;
  for (int i = 0; i < line; ++i) {
    if (!std::getline(file, text)) return "";
  }
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first);
}

}  // namespace

Whereabouts ask_where(pid_t pid) {
  const char state = process_state(pid);
  Whereabouts found{.paused = state == 'T' || state == 't', .stack = {}};
  if (found.paused || !catches(pid, ask_signal())) return found;
  found.stack = open_stack_of(pid);
  // The main thread has the number of its process.
  if (found.stack.valid()) syscall(SYS_tgkill, pid, pid, ask_signal());
  return found;
}

diagnosis::Frame read_where(const Whereabouts& whereabouts) {
  struct stat info{};
  const int fd = whereabouts.stack.get();
  if (fd < 0 || fstat(fd, &info) != 0) return {};
  std::string text(static_cast<size_t>(std::min(info.st_size, kMaxStack)), '\0');
  const ssize_t count =
      pread(fd, text.data(), text.size(), std::max<off_t>(0, info.st_size - kMaxStack));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  diagnosis::Frame frame = diagnosis::parse_stack(text);
  if (!frame.file.empty()) frame.code = read_source_line(frame.file, frame.line);
  return frame;
}

}  // namespace corro::agent
