#include "kube/user/job_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "kube/client/scripted_transport.h"

namespace corro::kube {
namespace {

using ::testing::HasSubstr;

TEST(TableOfJobs, ShowsTheNewestFirst) {
  const Json old = Json::parse(R"({"metadata": {"name": "line", "namespace": "ml",
      "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"worker": {"target": 2}},
      "status": {"state": "Running", "ready": 2, "restarts": 0,
                 "progress": {"ranks": 4, "step": 1200, "stepsPerSecond": 9.53}}})");
  const Json young = Json::parse(R"({"metadata": {"name": "b", "namespace": "default",
      "creationTimestamp": "2026-01-02T01:00:00Z"}, "spec": {"worker": {"target": 10}}})");
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(
      parse_rfc3339("2026-01-02T01:00:59Z").value());
  EXPECT_EQ(table_of_jobs({old, young}, false, now),
            "NAME   STATE     READY   RESTARTS   RANKS   STEP   STEPS/S   AGE\n"
            "b                /10                                         59s\n"
            "line   Running   2/2     0          4       1200   9.53      1d\n");
  EXPECT_THAT(table_of_jobs({young}, true, now), HasSubstr("default"));
  EXPECT_EQ(table_of_jobs({}, true, now), "");
}

struct Server {
  std::shared_ptr<Script> script = std::make_shared<Script>();
  Client client{std::make_unique<ScriptedTransport>(script), {}, real_surroundings()};

  void answer(int status, const char* text) {
    script->add({.status = status, .headers = {}, .pieces = {text}});
  }
};

constexpr const char* kJob = R"({"metadata": {"name": "line", "uid": "u-1"}, "status": {
    "conditions": [{"type": "Pending", "status": "True", "message": "0 of 2 workers run"}]}})";

TEST(JobLog, SaysWhyThereIsNone) {
  Server server;
  server.answer(200, kJob);
  server.answer(200, R"({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []})");
  const Status status = show_job_log(server.client, {"ml", "line"}, {}, [](auto) {}, {});
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "job line has no log: 0 of 2 workers run");
}

TEST(JobLog, IsThatOfTheHead) {
  Server server;
  server.answer(200, kJob);
  server.answer(200, R"({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [
      {"metadata": {"name": "line-head", "labels": {"training.corro.dev/role": "head"}},
       "spec": {"containers": [{"name": "head"}]},
       "status": {"containerStatuses": [{"name": "head", "state": {"running": {}}}]}}]})");
  server.answer(200, "loss 1\n");
  std::string log;
  const Status status = show_job_log(server.client, {"ml", "line"}, {.tail_lines = 5},
                                     [&log](std::string_view bytes) { log += bytes; }, {});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(log, "loss 1\n");
  EXPECT_EQ(server.script->asked().back().target,
            "/api/v1/namespaces/ml/pods/line-head/log?container=head&tailLines=5");
}

TEST(ScaleJob, SaysThatThereIsNoSuchJob) {
  Server server;
  server.answer(404, R"({"kind": "Status", "reason": "NotFound", "message": "not found"})");
  EXPECT_EQ(scale_job(server.client, {"ml", "line"}, 3, {}).message(),
            "there is no job line in namespace ml; corro jobs shows what there is");
}

TEST(ScaleJob, WritesTheTarget) {
  Server server;
  server.answer(200, kJob);
  server.answer(200, kJob);
  EXPECT_TRUE(scale_job(server.client, {"ml", "line"}, 3, {}).ok());
  EXPECT_EQ(server.script->asked().back().body, R"({"spec":{"worker":{"target":3}}})");
}

TEST(AutoscaleJob, GoesOnAfterAFailureThatMayHeal) {
  const auto script = std::make_shared<Script>();
  VirtualSurroundings time;
  Client client(std::make_unique<ScriptedTransport>(script), {}, time.make());
  const auto answer = [&script](int status, const Json& body) {
    script->add({.status = status, .headers = {}, .pieces = {body.dump()}});
  };
  Json job = Json::parse(R"({"metadata": {"name": "line", "uid": "u-1"},
      "spec": {"worker": {"min": 2, "target": 1, "max": 4}},
      "status": {"progress": {"ranks": 1, "step": 9}}})");
  const Json refusal = {{"kind", "Status"}, {"code", 409}, {"message", "written meanwhile"}};
  answer(200, job);
  answer(200, job);
  answer(409, refusal);
  job["status"]["conditions"] = Json::array({{{"type", "Succeeded"}, {"status", "True"}}});
  answer(200, job);
  std::vector<std::string> said;
  const auto say = [&said](const std::string& line) { said.push_back(line); };
  const Status end = autoscale_job(client, {"ml", "line"}, {}, say, {});
  EXPECT_TRUE(end.ok()) << end.message();
  ASSERT_EQ(said.size(), 2U);
  EXPECT_THAT(said[1], HasSubstr("written meanwhile"));
}

}  // namespace
}  // namespace corro::kube
