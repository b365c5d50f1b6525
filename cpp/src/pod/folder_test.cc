#include "pod/folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/message_pipe.h"
#include "io/files.h"
#include "launch/sync_reader.h"

namespace corro::pod {
namespace {

namespace fs = std::filesystem;

/// A head's container, in which `corro receive` is started, and the folder that is brought.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    signal(SIGPIPE, SIG_IGN);
    setenv("TMPDIR", (base_ / "tmp").c_str(), 1);
    fs::create_directories(base_ / "tmp");
    fs::create_directories(base_ / "mine/parts");
    std::ofstream(base_ / "mine/train.py") << "import parts\n";
    std::ofstream(base_ / "mine/parts/big") << std::string(3 << 20, 'x');
    settings_.identity.job_uid = "u-1";
    settings_.sync = base_ / "head/mine";
  }
  ~FolderTest() override {
    unsetenv("TMPDIR");
    fs::remove_all(base_);
  }

  /// Returns the exit status of `corro receive`, to which the folder is sent as `root`.
  int send(const std::string& root) {
    int to[2];
    int from[2];
    EXPECT_EQ(pipe(to) + pipe(from), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int fd : {to[0], to[1], from[0], from[1]}) close(fd);
      dup2(open((base_ / "said").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      _exit(receive_folder(settings_));
    }
    close(to[0]);
    close(from[1]);
    talk(root, agent::MessagePipe(io::Fd(from[0]), io::Fd(to[1])));
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

  /// What `corro receive` said on stderr.
  std::string said() { return io::read_small_file(base_ / "said"); }

  void talk(const std::string& root, agent::MessagePipe pipe) {
    launch::SyncReader reader(base_ / "mine", "");
    while (!reader.done()) ASSERT_TRUE(reader.advance().ok());
    const launch::SyncTree tree = reader.take();
    if (before_parts_) before_parts_();
    for (agent::Sync& part : tree.announce()) {
      part.root = root;
      pipe.send({{}, std::move(part)});
    }
    while (!pipe.ended()) {
      const auto out = static_cast<short>(pipe.unsent() ? POLLOUT : 0);
      pollfd fds[] = {{pipe.in(), POLLIN, 0}, {pipe.out(), out, 0}};
      poll(fds, 2, -1);
      pipe.flush();
      ASSERT_TRUE(pipe.read().ok());
      while (const auto message = pipe.take()) {
        const auto* want = std::get_if<agent::Want>(&message->body);
        if (want == nullptr) continue;
        parts_++;
        pipe.send({{}, tree.read_part(*want).value()});
      }
    }
  }

  const fs::path base_ =
      fs::temp_directory_path() / ("corro-folder-test-" + std::to_string(getpid()));
  PodSettings settings_;
  std::function<void()> before_parts_;  ///< Between the folder's list and its files.
  int parts_ = 0;
};

TEST_F(FolderTest, IsThereOnceAllOfItHasCome) {
  EXPECT_EQ(send(settings_.sync), 0);
  EXPECT_EQ(io::read_small_file(settings_.sync + "/train.py"), "import parts\n");
  EXPECT_EQ(fs::file_size(settings_.sync + "/parts/big"), 3U << 20U);
  int signal = 0;
  const auto is_there = wait_for_folder(settings_, signal);
  EXPECT_TRUE(is_there.ok() && *is_there);
}

TEST_F(FolderTest, DoesNotComeTwice) {
  EXPECT_EQ(send(settings_.sync), 0);
  parts_ = 0;
  EXPECT_EQ(send(settings_.sync), 0);
  EXPECT_EQ(parts_, 0);
}

TEST(Silence, LastsWhileNothingComes) {
  using std::chrono::seconds;
  const Time begin = Time{} + seconds(100);
  Silence silence(begin);
  EXPECT_FALSE(silence.is_long(begin + seconds(19), 0));
  EXPECT_FALSE(silence.is_long(begin + seconds(25), 7));  // Something has come.
  EXPECT_FALSE(silence.is_long(begin + seconds(44), 7));
  EXPECT_FALSE(silence.is_long(begin + seconds(60), 8));
  EXPECT_TRUE(silence.is_long(begin + seconds(80), 8));
}

TEST_F(FolderTest, TheHeadSeesThatItComes) {
  const fs::path sign = base_ / "tmp/corro-u-1-folder-comes";
  std::ofstream(sign).put('\n');
  const fs::file_time_type before = fs::last_write_time(sign) - std::chrono::hours(1);
  fs::last_write_time(sign, before);
  EXPECT_EQ(send(settings_.sync), 0);
  EXPECT_GT(fs::last_write_time(sign), before);
}

TEST_F(FolderTest, GoesNowhereElse) {
  EXPECT_EQ(send(base_ / "elsewhere"), 1);
  EXPECT_FALSE(fs::exists(base_ / "elsewhere"));
}

TEST_F(FolderTest, SaysWhyItCannotBeMade) {
  std::ofstream(base_ / "head") << "a file where the folder belongs\n";
  EXPECT_EQ(send(settings_.sync), 1);
  EXPECT_THAT(said(), testing::StartsWith("corro receive: "));
  EXPECT_THAT(said(), testing::HasSubstr(base_ / "head"));
}

TEST_F(FolderTest, SaysThatAFileHasChangedWhileItWasSent) {
  before_parts_ = [this] { std::ofstream(base_ / "mine/train.py") << "import ports\n"; };
  EXPECT_EQ(send(settings_.sync), 1);
  EXPECT_EQ(said(), "corro receive: train.py has changed while it was sent; start again\n");
}

TEST_F(FolderTest, IsNotExpectedWhereTheJobHasNone) {
  const std::string root = std::exchange(settings_.sync, "");
  EXPECT_EQ(send(root), 1);
}

TEST_F(FolderTest, ASignalEndsTheWait) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  raise(SIGTERM);  // Waits until somebody takes it.
  int signal = 0;
  EXPECT_EQ(wait_for_folder(settings_, signal).status().code(), Code::kCancelled);
  EXPECT_EQ(signal, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &mask, nullptr);
}

}  // namespace
}  // namespace corro::pod
