#include "app/choose_job.h"

#include <gtest/gtest.h>

namespace corro::app {
namespace {

const std::vector<launch::RunningJob> kTwo = {
    {.launcher = 4711, .id = "3f2a", .command = "corro run a.py"},
    {.launcher = 4712, .id = "4b", .command = "corro run '\x1b[2J'"}};

std::string why_none(const std::vector<launch::RunningJob>& jobs, const std::string& wanted) {
  const auto job = choose_job(jobs, wanted, "corro top");
  EXPECT_EQ(job.status().code(), Code::kNotFound);
  return job.status().message();
}

TEST(ChooseJob, TakesTheOnlyOneOrTheOneThatIsNamed) {
  EXPECT_EQ(choose_job({kTwo[0]}, "", "corro top")->id, "3f2a");
  EXPECT_EQ(choose_job(kTwo, "4711", "corro top")->id, "3f2a");
  EXPECT_EQ(choose_job(kTwo, "4b", "corro top")->launcher, 4712);
}

TEST(ChooseJob, SaysWhyItTakesNone) {
  EXPECT_EQ(why_none({}, ""), "no job of yours runs on this host");
  EXPECT_EQ(why_none({}, "4711"), "no job of yours runs on this host");
  EXPECT_EQ(why_none(kTwo, ""),
            "several jobs of yours run here; say which one:\n"
            "  corro top 4711   corro run a.py\n"
            "  corro top 4712   corro run '?[2J'");
  EXPECT_EQ(why_none({kTwo[0]}, "9"),
            "no job 9 here; there is:\n  corro top 4711   corro run a.py");
}

}  // namespace
}  // namespace corro::app
