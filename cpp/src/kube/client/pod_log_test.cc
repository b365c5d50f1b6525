#include "kube/client/pod_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "kube/client/scripted_transport.h"

namespace corro::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string pod_text(const std::string& state, const std::string& phase = "Running") {
  return R"({"spec":{"containers":[{"name":"c"},{"name":"other"}]},"status":{"phase":")" + phase +
         R"(","reason":"Evicted","containerStatuses":[{"name":"c",)" + state + "}]}}";
}
const std::string kWaiting = pod_text(R"("state":{"waiting":{"reason":"ContainerCreating"}})");
const std::string kRunning = pod_text(R"("state":{"running":{}})");
const std::string kTerminated = pod_text(R"("state":{"terminated":{"exitCode":0}})");

class PodLogs : public testing::Test {
 protected:
  PodLogs() : client_(std::make_unique<ScriptedTransport>(script_), {}, time_.make()) {}

  void answer(const std::string& body, int status = 200) {
    script_->add({.status = status, .pieces = {body}});
  }
  void cut(const std::string& body) {
    script_->add({.pieces = {body}, .end = {Code::kUnavailable, "cut"}});
  }
  Status follow(const LogRequest& request) {
    return follow_log(
        client_, request,
        [&](std::string_view bytes) {
          text_ += bytes;
          return text_.ends_with("stop\n") ? Status(Code::kAborted, "enough") : Status();
        },
        [&](const Status& trouble) {
          troubles_.push_back(trouble.message());
          if (troubles_.size() == 10) stopping_.request_stop();  // The script is over.
        },
        stop_);
  }
  Status follow() { return follow({.pod = {"d", "a"}, .container = "c"}); }
  [[nodiscard]] std::vector<std::string> log_targets() {
    std::vector<std::string> all;
    for (const Request& request : script_->asked()) {
      const size_t begin = request.target.find("/log");
      if (begin != std::string::npos) all.push_back(request.target.substr(begin));
    }
    return all;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  VirtualSurroundings time_;
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
  Client client_;
  std::string text_;
  std::vector<std::string> troubles_;
};

TEST_F(PodLogs, GoOnWhereTheyWereCutUntilTheContainerHasEnded) {
  answer(kWaiting);
  answer(kRunning);
  cut("2026-11-24T20:15:04.1Z one\n2026-11-24T20:15:04.2Z tw");
  answer(kRunning);
  script_->add({.status = 0, .end = {Code::kUnavailable, "refused"}});
  answer(kRunning);
  answer("2026-11-24T20:15:04.1Z one\n2026-11-24T20:15:04.2Z two\n");
  answer(kTerminated);
  answer("2026-11-24T20:15:04.1Z one\n2026-11-24T20:15:04.2Z two\n2026-11-24T20:15:06Z three\n");
  const Status end = follow();
  EXPECT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(text_, "one\ntwo\nthree\n");
  EXPECT_THAT(troubles_, ElementsAre("pods d/a: log of c: cut", "pods d/a: log of c: refused"));
  const std::string again =
      "/log?follow=true&timestamps=true&container=c&sinceTime=2026-11-24T20%3A15%3A03Z";
  EXPECT_THAT(log_targets(),
              ElementsAre("/log?follow=true&timestamps=true&container=c", again, again, again));
}

TEST_F(PodLogs, AskForATailOnceAndForNothingBeforeTheGivenTime) {
  const auto since =
      std::chrono::floor<std::chrono::seconds>(*parse_rfc3339("2026-11-24T20:15:04Z"));
  answer(kRunning);
  cut("");
  answer(kRunning);
  cut("2026-11-24T20:15:04.1Z one\n");
  answer(kTerminated);
  answer("2026-11-24T20:15:04.1Z one\n");
  const LogRequest request{.pod = {"d", "a"}, .container = "c", .tail_lines = 5, .since = since};
  EXPECT_TRUE(follow(request).ok());
  EXPECT_EQ(text_, "one\n");
  EXPECT_THAT(log_targets(),
              ElementsAre(HasSubstr("sinceTime=2026-11-24T20%3A15%3A04Z&tailLines=5"),
                          HasSubstr("sinceTime=2026-11-24T20%3A15%3A04Z&tailLines=5"),
                          testing::EndsWith("sinceTime=2026-11-24T20%3A15%3A04Z")));
}

TEST_F(PodLogs, EndOnWhatCannotHeal) {
  answer(R"({"reason":"NotFound","message":"gone"})", 404);
  EXPECT_EQ(follow().code(), Code::kNotFound);
  answer(kRunning);
  answer(R"({"reason":"Forbidden","message":"cannot get resource \"pods/log\""})", 403);
  const Status refused = follow();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("pods/log"));
  answer(kRunning);
  EXPECT_EQ(follow({.pod = {"d", "a"}, .container = "x"}).message(),
            "pods d/a: log of x: the pod has no such container");
  answer(pod_text(R"("state":{"waiting":{}})", "Failed"));
  const Status evicted = follow();
  EXPECT_EQ(evicted.code(), Code::kFailedPrecondition);
  EXPECT_THAT(evicted.message(), HasSubstr("never ran: the pod is Failed: Evicted"));
  answer(kRunning);
  answer("2026-11-24T20:15:04.1Z stop\n");
  EXPECT_EQ(follow().message(), "enough");
  EXPECT_TRUE(troubles_.empty());
}

TEST_F(PodLogs, OfASilentContainerAreAskedForAgainWithoutAWord) {
  answer(kTerminated);
  script_->add({.status = 0, .end = {Code::kDeadlineExceeded, "no answer in time"}});
  answer(kTerminated);
  answer("2026-11-24T20:15:04.1Z one\n");
  EXPECT_TRUE(follow().ok());
  EXPECT_EQ(text_, "one\n");
  EXPECT_TRUE(troubles_.empty());
}

TEST_F(PodLogs, AreStoppedWhileTheyHang) {
  answer(kRunning);
  script_->add({.pieces = {"2026-11-24T20:15:04.1Z one\n"}, .hangs = true});
  Status end;
  std::thread following([&] { end = follow(); });
  {
    auto asked = script_->requests.lock();
    while (asked->size() < 2) asked.wait_for(std::chrono::milliseconds(10));
  }
  stopping_.request_stop();
  following.join();
  EXPECT_EQ(end.code(), Code::kCancelled) << end.message();
}

TEST(ContainerStates, AreReadFromAPodOfAnyShape) {
  const auto state_of = [](const std::string& text) {
    return container_state(Json::parse(text), "c", "name");
  };
  EXPECT_EQ(*state_of(kWaiting), ContainerState::kWaits);
  EXPECT_EQ(*state_of(kRunning), ContainerState::kRuns);
  EXPECT_EQ(*state_of(kTerminated), ContainerState::kEnded);
  EXPECT_EQ(*state_of(pod_text(R"("state":{"waiting":{}},"lastState":{"terminated":{}})")),
            ContainerState::kRuns);
  EXPECT_EQ(*state_of(R"({"spec":{"initContainers":[{"name":"c"}]}})"), ContainerState::kWaits);
  EXPECT_EQ(state_of(R"({"spec":{"containers":7}})").status().code(), Code::kNotFound);
}

TEST_F(PodLogs, OutlastRefusalsWhereThatIsAsked) {
  answer(kRunning);
  answer(R"({"kind":"Status","code":403,"message":"no right"})", 403);
  answer(kRunning);
  answer(R"({"kind":"Status","code":400,"message":"not now"})", 400);
  answer(kTerminated);
  answer("2026-11-24T20:15:04.1Z one\n");
  const Status end = follow({.pod = {"d", "a"}, .container = "c", .outlasts_refusals = true});
  EXPECT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(text_, "one\n");
  EXPECT_THAT(troubles_, ElementsAre(HasSubstr("no right"), HasSubstr("not now")));
  EXPECT_EQ(time_.waits.size(), 2U);
}

}  // namespace
}  // namespace corro::kube
