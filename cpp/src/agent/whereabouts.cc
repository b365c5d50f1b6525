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

constexpr std::string_view kStack = "/memfd:corro-stack ";  // A name ends before " (deleted)".
constexpr std::string_view kThreads = "/memfd:corro-threads ";
constexpr off_t kMaxStack = 64 << 10;
constexpr off_t kMaxThreads = 256 << 10;

io::Fd open_memfd(pid_t pid, std::string_view name) {
  std::error_code error;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = readlink(entry->path().c_str(), target.data(), target.size());
    if (length <= 0) continue;
    const std::string_view link(target.data(), static_cast<size_t>(length));
    if (link.starts_with(name)) return io::Fd(open(entry->path().c_str(), O_RDWR | O_CLOEXEC));
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

Whereabouts ask(pid_t pid, int signal, std::string_view name) {
  const char state = process_state(pid);
  Whereabouts found{.paused = state == 'T' || state == 't', .stack = {}};
  if (found.paused || !catches(pid, signal)) return found;
  found.stack = open_memfd(pid, name);
  if (!found.stack.valid()) return found;
  struct stat info{};
  if (fstat(found.stack.get(), &info) == 0) found.begin = info.st_size;
  syscall(SYS_tgkill, pid, pid, signal);  // The main thread has the number of its process.
  return found;
}

std::string read_text(int fd, off_t begin, off_t most) {
  std::string text(static_cast<size_t>(most), '\0');
  const ssize_t count = pread(fd, text.data(), text.size(), begin);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

}  // namespace

Whereabouts ask_where(pid_t pid) { return ask(pid, ask_signal(), kStack); }

Whereabouts ask_threads(pid_t pid) {
  Whereabouts found = ask(pid, ask_threads_signal(), kThreads);
  // What was asked earlier takes no memory.
  if (found.begin > 0)
    fallocate(found.stack.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, found.begin);
  return found;
}

bool answers(pid_t pid) {
  return catches(pid, ask_threads_signal()) && open_memfd(pid, kThreads).valid();
}

diagnosis::Frame read_where(const Whereabouts& whereabouts) {
  struct stat info{};
  const int fd = whereabouts.stack.get();
  if (fd < 0 || fstat(fd, &info) != 0) return {};
  diagnosis::Frame frame = diagnosis::parse_stack(
      read_text(fd, std::max<off_t>(0, info.st_size - kMaxStack), kMaxStack));
  if (!frame.file.empty()) frame.code = read_source_line(frame.file, frame.line);
  return frame;
}

std::string read_threads(const Whereabouts& whereabouts) {
  return read_text(whereabouts.stack.get(), whereabouts.begin, kMaxThreads);
}

}  // namespace corro::agent
