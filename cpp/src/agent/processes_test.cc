#include "agent/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <thread>

namespace corro::agent {
namespace {

/// A child that starts one of its own; ends both.
class Family {
 public:
  Family() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    child_ = fork();
    if (child_ == 0) {
      const pid_t grandchild = fork();
      if (grandchild > 0) (void)!write(ends[1], &grandchild, sizeof(grandchild));
      while (true) pause();
    }
    EXPECT_EQ(read(ends[0], &grandchild_, sizeof(grandchild_)), ssize_t{sizeof(grandchild_)});
    close(ends[0]), close(ends[1]);
  }
  ~Family() {
    kill(grandchild_, SIGKILL);
    end_child();
    waitpid(child_, nullptr, 0);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void end_child() const {
    kill(child_, SIGKILL);
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOWAIT);
  }
  [[nodiscard]] pid_t child() const { return child_; }
  [[nodiscard]] pid_t grandchild() const { return grandchild_; }

 private:
  pid_t child_ = 0, grandchild_ = 0;
};

TEST(OwnChildren, AreThoseThatLiveWithoutTheirOwn) {
  const Family family;
  EXPECT_THAT(own_children(), testing::Contains(family.child()));
  EXPECT_THAT(own_children(), testing::Not(testing::Contains(family.grandchild())));
  family.end_child();
  EXPECT_THAT(own_children(), testing::Not(testing::Contains(family.child())));
}

TEST(ProcessState, OfOneThatIsBeingReapedIsThatOfOneThatIsGone) {
  constexpr int kTimes = 300;
  std::set<char> seen;
  for (int i = 0; i < kTimes; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    std::jthread reaper([child] { waitpid(child, nullptr, 0); });
    char state = ' ';
    while (state != '?') seen.insert(state = process_state(child));
  }
  EXPECT_THAT(seen, testing::Contains('?'));
  EXPECT_THAT(seen, testing::Not(testing::Contains('X')));
}

}  // namespace
}  // namespace corro::agent
