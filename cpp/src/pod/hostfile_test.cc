#include "pod/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace corro::pod {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostfileTest, NamesOneHostInALine) {
  EXPECT_THAT(hosts_in("m-worker-1.m.ns.svc slots=2\nm-worker-0.m.ns.svc slots=2\n"),
              ElementsAre("m-worker-0.m.ns.svc", "m-worker-1.m.ns.svc"));
  EXPECT_THAT(hosts_in("m-worker-0:2\nm-launcher"), ElementsAre("m-launcher", "m-worker-0"));
  EXPECT_THAT(hosts_in("# m-worker-0\n\n"), IsEmpty());
}

class HostfileWatchTest : public ::testing::Test {
 protected:
  ~HostfileWatchTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_) << text; }

  std::string path_ = std::filesystem::temp_directory_path() /
                      ("corro-hostfile-" + std::to_string(getpid()) + "-" +
                       ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HostfileWatchTest, AHostThatIsNamedNoMoreIsGoneUntilItIsNamedAgain) {
  HostfileWatch watch(path_);
  EXPECT_FALSE(watch.look()) << "it is not there yet";
  write("a\nb\n");
  EXPECT_FALSE(watch.look());
  write("a\n");
  EXPECT_TRUE(watch.look());
  EXPECT_THAT(watch.gone(), ElementsAre("b"));
  EXPECT_FALSE(watch.look()) << "it was told";
  EXPECT_THAT(watch.gone(), ElementsAre("b"));
  write("a\nb\nc\n");
  EXPECT_FALSE(watch.look());
  EXPECT_THAT(watch.gone(), IsEmpty());
}

TEST_F(HostfileWatchTest, OneThatCannotBeReadChangesNothing) {
  HostfileWatch watch(path_);
  write("a\n");
  EXPECT_FALSE(watch.look());
  std::filesystem::remove(path_);
  EXPECT_FALSE(watch.look());
  EXPECT_THAT(watch.gone(), IsEmpty());
}

}  // namespace
}  // namespace corro::pod
