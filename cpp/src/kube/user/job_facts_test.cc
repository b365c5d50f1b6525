#include "kube/user/job_facts.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace corro::kube {
namespace {

Json job_with(const char* status) {
  Json job = Json::parse(R"({"spec": {"worker": {"target": 2}}})");
  job["status"] = Json::parse(status);
  return job;
}

Json pod_of(const std::string& role, int generation, const char* state) {
  Json pod = Json::parse(R"({"spec": {"containers": [{"name": "main"}]}})");
  pod["metadata"]["labels"] = {{"training.corro.dev/role", role},
                               {"training.corro.dev/generation", std::to_string(generation)}};
  const Json status = {{"name", "main"}, {"state", Json::parse(state)}};
  pod["status"]["containerStatuses"] = Json::array({status});
  return pod;
}

Json ended(const std::string& role, int generation, int code, const char* at) {
  return pod_of(
      role, generation,
      fmt::format(R"({{"terminated": {{"exitCode": {}, "finishedAt": "{}"}}}})", code, at).c_str());
}

TEST(JobFacts, SayWhyAJobDoesNotRun) {
  const JobFacts facts = facts_of(job_with(R"({"state": "Pending", "conditions": [
      {"type": "Pending", "status": "True", "message": "1 of 2 workers run"},
      {"type": "Running", "status": "False", "message": "no"}]})"));
  EXPECT_EQ(facts.waits_for, "1 of 2 workers run");
  EXPECT_FALSE(facts.runs);
  EXPECT_FALSE(facts.is_over);
}

TEST(JobFacts, SayThatItsPodsAreWrong) {
  const char* status = R"({"state": "Pending", "conditions": [{"type": "Pending", "status": "True",
      "reason": "CreateInvalid", "message": "Pod a: 422: no amount; tried again at 10:00"}]})";
  EXPECT_TRUE(facts_of(job_with(status)).is_wrong);
  EXPECT_EQ(facts_of(job_with(status)).why, "Pod a: 422: no amount");
  Json running = job_with(status);
  running["status"]["state"] = "Running";
  EXPECT_FALSE(facts_of(running).is_wrong);
}

TEST(JobFacts, SayHowItEnded) {
  const JobFacts failed = facts_of(job_with(
      R"({"conditions": [{"type": "Failed", "status": "True", "message": "exit code 3"}]})"));
  EXPECT_TRUE(failed.is_over);
  EXPECT_FALSE(failed.has_succeeded);
  EXPECT_EQ(failed.why, "exit code 3");
  EXPECT_FALSE(failed.was_too_long);
  const JobFacts late = facts_of(job_with(
      R"({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]})"));
  EXPECT_TRUE(late.was_too_long);
  const JobFacts succeeded =
      facts_of(job_with(R"({"conditions": [{"type": "Succeeded", "status": "True"}]})"));
  EXPECT_TRUE(succeeded.is_over);
  EXPECT_TRUE(succeeded.has_succeeded);
}

TEST(JobFacts, FindTheHeadThatSpeaks) {
  EXPECT_EQ(newest_head({}), nullptr);
  const PodsByName pods = {
      {"a", ended("head", 0, 143, "2026-01-01T00:00:00Z")},
      {"b", pod_of("head", 10, R"({"running": {}})")},
      {"c", pod_of("head", 11, R"({"waiting": {}})")},
      {"d", pod_of("worker", 12, R"({"running": {}})")},
  };
  ASSERT_NE(newest_head(pods), nullptr);
  EXPECT_EQ(generation_of(*newest_head(pods)), 10);
  EXPECT_EQ(newest_head(pods), &pods.at("b"));
}

TEST(JobFacts, TakeTheExitStatusOfTheFirstWorkerThatEnded) {
  const PodsByName pods = {
      {"a", ended("worker", 0, 9, "2026-01-01T00:00:00Z")},
      {"b", ended("worker", 1, 143, "2026-01-01T00:00:09Z")},
      {"c", ended("worker", 1, 3, "2026-01-01T00:00:08Z")},
      {"d", ended("head", 1, 0, "2026-01-01T00:00:01Z")},
  };
  EXPECT_EQ(exit_status_of(job_with("{}"), pods), 3);
  EXPECT_EQ(exit_status_of(job_with("{}"), {}), std::nullopt);
}

TEST(JobFacts, TakeThatOfAnElasticJobsHead) {
  Json job = job_with("{}");
  job["spec"]["worker"]["min"] = 1;
  const PodsByName pods = {
      {"a", ended("worker", 1, 9, "2026-01-01T00:00:00Z")},
      {"b", ended("head", 0, 1, "2026-01-01T00:00:01Z")},
      {"c", ended("head", 1, 5, "2026-01-01T00:00:02Z")},
  };
  EXPECT_EQ(exit_status_of(job, pods), 5);
}

}  // namespace
}  // namespace corro::kube
