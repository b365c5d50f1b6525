#include "launch/hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

/// The hint after `corro run train.py <words>`, the program having said `said`.
std::string hint_after(const MisplacedOption& misplaced, const std::string& said,
                       std::optional<int> ranks = {}) {
  LaunchPlan plan;
  plan.options.command = {"train.py", misplaced.words};
  plan.options.misplaced = {misplaced};
  plan.options.ranks = ranks;
  return hint_about(plan, {.error = "", .details = "", .where = {}, .last_line = said});
}

TEST(Hint, IsGivenWhereTheProgramComplainsOfAnOptionOfCorro) {
  EXPECT_EQ(
      hint_after({"--show", "--show all"}, "train.py: error: unrecognized arguments: --show all"),
      "--show all went to the program; if it was for corro: corro run --show all train.py ...");
  EXPECT_EQ(hint_after({"--show", "--show all"}, "train.py: error: --show-all needs a file"), "");
  EXPECT_EQ(hint_after({"-n", "-n 3"}, "cannot open my-n file"), "");
}

TEST(Hint, ANumberOfRanksIsPlainUnlessThereIsOneInFront) {
  EXPECT_THAT(hint_after({"-np", "-np 2", true}, "KeyError: 0"),
              HasSubstr("corro run -np 2 train.py"));
  EXPECT_EQ(hint_after({"-np", "-np 2", true}, "KeyError: 0", 4), "");
  EXPECT_THAT(hint_after({"-np", "-np 2", true}, "unrecognized arguments: -np 2", 4),
              HasSubstr("corro run -np 2"));
}

TEST(Hint, NamesTheInterpreterThatLacksAModuleIfAnotherWasAtHand) {
  LaunchPlan plan;
  plan.command = {.program = "/usr/bin/python3",
                  .arguments = {"python3", "train.py"},
                  .name = "train",
                  .other_python = "/venv/bin/python"};
  diagnosis::Crash crash;
  crash.last_line = "ModuleNotFoundError: No module named 'torch'";
  EXPECT_EQ(hint_about(plan, crash),
            "that was /usr/bin/python3; leave `python3` out, and `corro run` takes "
            "/venv/bin/python");
  plan.command.other_python.clear();
  EXPECT_EQ(hint_about(plan, crash), "");
}

}  // namespace
}  // namespace corro::launch
