// A real cgroup with a limit: commit() refuses in one line, and nobody is killed.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "io/memory.h"

namespace corro::io {
namespace {

namespace fs = std::filesystem;

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// A memory cgroup below the test's own, gone with the object.
class LimitedCgroup {
 public:
  explicit LimitedCgroup(size_t bytes) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line) && path_.empty();) {
      const std::string path = line.substr(line.rfind(':') + 1);
      if (line.find(":memory:") != std::string::npos) {
        make("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", bytes);
      } else if (line.starts_with("0::")) {
        make("/sys/fs/cgroup" + path, "memory.max", bytes);
      }
    }
  }
  ~LimitedCgroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  LimitedCgroup(const LimitedCgroup&) = delete;
  LimitedCgroup& operator=(const LimitedCgroup&) = delete;

  [[nodiscard]] bool made() const { return !path_.empty(); }
  /// Moves the calling process in.
  [[nodiscard]] bool enter() const {
    return write_file(path_ / "cgroup.procs", std::to_string(getpid()));
  }

 private:
  void make(const fs::path& parent, const char* limit, size_t bytes) {
    const fs::path path = parent / ("corro-test-" + std::to_string(getpid()));
    if (mkdir(path.c_str(), 0755) != 0) return;
    if (write_file(path / limit, std::to_string(bytes))) {
      path_ = path;
    } else {
      rmdir(path.c_str());
    }
  }
  fs::path path_;
};

enum Outcome : int {
  kRefused = 0,
  kNotEntered = 1,
  kSmallRefused = 2,
  kLargeCommitted = 3,
  kUnclear = 4
};

/// In a process inside the limit: 8 MiB are given, 256 MiB refused in one line that says what to
/// do.
Outcome commit_inside(const LimitedCgroup& cgroup) {
  if (!cgroup.enter()) return kNotEntered;
  const Fd fd = create_memfd("corro-test", 512 * kMib).value();
  if (!commit(fd.get(), 0, 8 * kMib).ok()) return kSmallRefused;
  const Status refused = commit(fd.get(), 8 * kMib, 256 * kMib);
  if (refused.code() != Code::kResourceExhausted) return kLargeCommitted;
  const std::string& text = refused.message();
  const bool clear = text.find("needs 256 MiB") != std::string::npos &&
                     text.find("cgroup limit") != std::string::npos &&
                     text.find("is 64 MiB") != std::string::npos &&
                     text.find('\n') == std::string::npos;
  return clear ? kRefused : kUnclear;
}

TEST(CommitInACgroup, IsRefusedBeforeTheLimitKills) {
  const LimitedCgroup cgroup(64 * kMib);
  if (!cgroup.made()) GTEST_SKIP() << "may not make a memory cgroup here (needs root)";
  const pid_t child = fork();
  if (child == 0) _exit(commit_inside(cgroup));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), kRefused);
}

}  // namespace
}  // namespace corro::io
