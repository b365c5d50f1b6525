#include "app/subprograms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace corro::app {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(Subprograms, CarryOutWhatNeedsMuchToBeLinked) {
  EXPECT_EQ(subprogram_of("plan"), "corro-plan");
  EXPECT_EQ(subprogram_of("probe"), "corro-plan");
  EXPECT_EQ(subprogram_of("operator"), "corro-operator");
  EXPECT_EQ(subprogram_of("checkpoint"), "corro-checkpoint");
  EXPECT_EQ(subprogram_of("server"), "corro-server");
  EXPECT_EQ(subprogram_of("coordinator"), "corro-coordinator");
  for (const char* own :
       {"run", "agent", "doctor", "stacks", "status", "top", "help", "completion", ""}) {
    EXPECT_EQ(subprogram_of(own), "") << own;
  }
}

TEST(Subprograms, LieInLibexecBesideTheFolderOfCorro) {
  EXPECT_EQ(path_of("corro-plan", "/opt/corro/bin"), "/opt/corro/libexec/corro/corro-plan");
  EXPECT_EQ(folder_of_corro("/opt/corro/libexec/corro"), "/opt/corro/bin");
  EXPECT_EQ(folder_of_corro("/opt/corro/bin"), "/opt/corro/bin");
}

TEST(Subprograms, MissingOneIsOneLineThatNamesIt) {
  CaptureStderr();
  EXPECT_EQ(become("/nowhere/libexec/corro/corro-plan", "plan", {"plan"}), 127);
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("corro plan: /nowhere/libexec/corro/corro-plan is not there"));
  EXPECT_THAT(said, HasSubstr("the whole wheel, or CMake's component development-more"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
}

TEST(Subprograms, OneThatCannotBeStartedSaysWhy) {
  const std::string path = testing::TempDir() + "corro-plan-that-is-no-program";
  std::ofstream(path) << "text";
  CaptureStderr();
  EXPECT_EQ(become(path, "plan", {"plan"}), 127);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("cannot start " + path + ": Permission denied"));
}

}  // namespace
}  // namespace corro::app
