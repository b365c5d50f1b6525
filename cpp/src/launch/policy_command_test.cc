#include "launch/policy_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace corro::launch {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const coord::Wait kStandard{.span = seconds(7)};

std::shared_ptr<PolicyCommand> run(const std::string& command) {
  (void)signal(SIGPIPE, SIG_IGN);  // As in the launcher.
  sigset_t none;
  sigemptyset(&none);
  return PolicyCommand::start(command, none).value();
}

coord::Wait ask(const std::string& command) { return run(command)->ask("{}", kStandard); }

TEST(PolicyCommand, AnswersEachQuestionWithATimeAndAReason) {
  const auto program =
      run(R"(while read -r line; do echo "{\"wait\": 2.5, \"why\": \"$line\"}"; done)");
  for (const char* question : {"one", "two"}) {
    const coord::Wait wait = program->ask(question, kStandard);
    EXPECT_EQ(wait.span, std::chrono::milliseconds(2500));
    EXPECT_EQ(wait.why, std::string(question) + ": 2.5 s, as --policy says");
  }
}

TEST(PolicyCommand, WhatAnAnswerLeavesOutIsAsItAlwaysIs) {
  for (const char* answer : {"{}", R"({"wait": null, "why": null})"}) {
    const coord::Wait wait = ask(std::string("read -r line; echo '") + answer + "'; sleep 1000");
    EXPECT_EQ(wait.span, seconds(7)) << answer;
    EXPECT_EQ(wait.why, "") << answer;
  }
}

TEST(PolicyCommand, OneThatMakesNoSenseIsAskedNoMore) {
  for (const char* answer : {"5", "[5]", "soon", R"({"wait": -1})", R"({"wait": "5"})",
                             R"({"wait": 1e9})", R"({"why": 5})"}) {
    const auto program = run(std::string("while read -r line; do echo '") + answer + "'; done");
    const coord::Wait wait = program->ask("{}", kStandard);
    EXPECT_EQ(wait.span, seconds(7)) << answer;
    EXPECT_THAT(wait.why, HasSubstr(answer));
    EXPECT_THAT(wait.why, HasSubstr("it is asked no more"));
    EXPECT_EQ(program->ask("{}", kStandard).why, "") << "once";
  }
}

TEST(PolicyCommand, ATimeWithoutAReasonHasThePolicyForOne) {
  EXPECT_EQ(ask(R"(read -r line; echo '{"wait": 2}'; sleep 1000)").why, "2 s, as --policy says");
}

TEST(PolicyCommand, NamesTheSideThatGoes) {
  const auto program = run("while read -r line; do echo \"$line\"; done");
  const coord::Verdict standard{.side = 1, .why = "it is smaller"};
  EXPECT_EQ(program->ask(R"({"fence": 0, "why": "it is far"})", standard, 2).side, 0U);
  EXPECT_EQ(program->ask(R"({"fence": 0})", standard, 2).why, "it goes, as --policy says");
  EXPECT_EQ(program->ask("{}", standard, 2).side, 1U);
  EXPECT_EQ(program->ask("{}", standard, 2).why, "it is smaller");
  const coord::Verdict nonsense = program->ask(R"({"fence": 2})", standard, 2);
  EXPECT_EQ(nonsense.side, 1U);
  EXPECT_THAT(nonsense.why, HasSubstr(R"(answers {"fence": 2}, which is not like {"fence": 0,)"));
}

TEST(PolicyCommand, ManySlowAnswersHoldUpTheLauncherLikeALateOne) {
  const auto program = run("while read -r line; do sleep 0.8; echo '{}'; done");
  for (int answers = 0; answers < 3; ++answers)
    EXPECT_EQ(program->ask("{}", kStandard).why, "") << answers;
  EXPECT_THAT(program->ask("{}", kStandard).why, HasSubstr("more than 3 s for its last answers"));
}

TEST(PolicyCommand, OneThatEndsIsSaidWithItsStatusAndLastLine) {
  EXPECT_EQ(ask("read -r line; echo oh >&2; echo no module corro >&2; exit 1").why,
            "--policy read -r line; echo oh >&2; echo no module corro >&2; exit 1: it ended with "
            "status 1: no module corro; it is asked no more");
  EXPECT_THAT(ask("/no/such/program").why, HasSubstr("it ended with status 127: "));
  EXPECT_THAT(ask("kill -9 $$").why, HasSubstr("it ended with signal 9;"));
}

/// Why it is of no use before anything was asked; once it has said so.
std::string trouble_of(PolicyCommand& program) {
  while (true) {
    if (const std::string trouble = program.look(); !trouble.empty()) return trouble;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(PolicyCommand, OneThatEndsBeforeItIsAskedIsNoticed) {
  const auto program = run("/no/such/program");
  EXPECT_THAT(trouble_of(*program), AllOf(HasSubstr("--policy /no/such/program: it ended with "
                                                    "status 127: "),
                                          HasSubstr("; it is asked no more")));
  EXPECT_EQ(program->look(), "") << "once";
  EXPECT_EQ(program->ask("{}", kStandard).span, seconds(7));
  EXPECT_EQ(program->ask("{}", kStandard).why, "");
}

TEST(PolicyCommand, OneThatRunsIsLeftAlone) {
  const auto program = run("while read -r line; do echo '{\"wait\": 1}'; done");
  EXPECT_EQ(program->look(), "");
  EXPECT_EQ(program->ask("{}", kStandard).span, seconds(1));
  EXPECT_EQ(program->look(), "");
}

TEST(PolicyCommand, OneThatReadsNothingMoreAndGoesOnIsSaidSo) {
  const auto program = run("exec <&-; while true; do echo '{}'; sleep 0.1; done");
  std::string why;
  while (why.empty()) why = program->ask("{}", kStandard).why;
  EXPECT_THAT(why, HasSubstr(": it reads nothing;"));
}

TEST(PolicyCommand, OneThatDoesNotAnswerIsNotWaitedFor) {
  EXPECT_THAT(ask("sleep 1000").why, HasSubstr("it has not answered after 1 s"));
}

TEST(AskedPolicy, SaysWhatItIsAbout) {
  const auto program =
      run(R"(while read -r line; do echo "{\"why\": \"$(echo "$line" | tr '"' "'")\"}"; done)");
  const coord::Policy policy =
      asked_policy(program, coord::standard_policy({.replacement = seconds(3)}),
                   [](size_t host) { return "node" + std::to_string(host); });
  const coord::Wait wait =
      policy.replace({.how = "rank 1 was killed", .left = 2, .size = 3, .least = 1});
  EXPECT_EQ(wait.span, seconds(3));
  EXPECT_EQ(wait.why,
            "{'about':'loss','cause':'rank 1 was killed','left':2,'size':3,'least':1}: "
            "others may come in their place for 3 s");
  EXPECT_EQ(policy.gather({.size = 2, .coming = 1, .most = 4}).why,
            "{'about':'growth','size':2,'coming':1,'most':4}");
  EXPECT_EQ(policy.quarantine({.host = 7, .failures = 2}).why,
            "{'about':'failure','host':'node7','failures':2}: "
            "2 failures in a row: nothing is started in this slot for 1 s");
  const coord::Verdict verdict = policy.fence(
      {.how = "rank 0 has lost rank 1",
       .sides = {{.host = 0, .members = {0}}, {.host = 1, .members = {1, 2}, .accusers = 1}}});
  EXPECT_EQ(verdict.side, 1U) << "as the standard policy says";
  EXPECT_EQ(verdict.why,
            "{'about':'cut','cause':'rank 0 has lost rank 1','sides':["
            "{'host':'node0','ranks':1,'accusers':0},{'host':'node1','ranks':2,'accusers':1}]}");
}

}  // namespace
}  // namespace corro::launch
