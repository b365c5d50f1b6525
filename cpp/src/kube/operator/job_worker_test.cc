#include "kube/operator/job_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "kube/client/scripted_transport.h"
#include "kube/job/names.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string refusal(int code, const std::string& reason, const std::string& message) {
  return text_of({{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}});
}

Result<std::map<std::string, std::string>> fill_with_uid(const JobIdentity& job,
                                                         const Action& action) {
  std::map<std::string, std::string> data;
  data[action.members.at(0)] = job.uid;
  return data;
}

/// A worker whose server answers by a script. The job has one worker and no gang; its first look
/// writes the status and makes Secret, Services and NetworkPolicy.
class JobWorkers : public testing::Test {
 protected:
  JobWorkers() {
    job_ = sample_corro_job(1);
    job_["metadata"] = {{"name", "mnist"},
                        {"namespace", "default"},
                        {"uid", "u1"},
                        {"generation", 1},
                        {"resourceVersion", "5"}};
    table_.changed(kCorroJobKind, job_);
  }
  ~JobWorkers() override { std::fclose(file_); }

  void answer(int status, const std::string& body) {
    script_->add({.status = status, .pieces = {body}});
  }
  void answer_done() { answer(201, "{}"); }
  void cut_after_sending() {
    script_->add({.status = 0, .end = {Code::kUnavailable, "cut"}, .was_sent = true});
  }
  /// Calls: PATCH status, POST Secret, POST Service.
  void lose_the_head_services_answer() {
    answer_status();
    answer_done();
    cut_after_sending();
    look();
    EXPECT_FALSE(is_created({"Service", "mnist-head"}));
    EXPECT_EQ(calls().size(), 3U);
  }
  /// The status as the server has it after the first write.
  void answer_status(bool is_kept = true, std::function<void()> meanwhile = {}) {
    Json job = job_;
    job["metadata"]["resourceVersion"] = "6";
    if (is_kept)
      job["status"] = {{"observedGeneration", 1},
                       {"state", "Pending"},
                       {"conditions", Json::array({{{"type", "Created"}, {"status", "True"}}})}};
    script_->add({.pieces = {text_of(job)}, .meanwhile = std::move(meanwhile)});
  }
  void look() {
    queue_.add("default/u1");
    ASSERT_TRUE(queue_.try_take().has_value());
    worker_.look("default/u1", stop_);
  }
  [[nodiscard]] std::vector<std::string> calls() {
    std::vector<std::string> all;
    for (const Request& request : script_->asked()) {
      const Json body = request.body.empty() ? Json() : Json::parse(request.body);
      all.push_back(request.method + " " + text_at(body, {"kind"}) +
                    request.target.substr(request.target.rfind('/'))
                        .substr(0, request.target.substr(request.target.rfind('/')).find('?')));
    }
    return all;
  }
  [[nodiscard]] static std::vector<ObjectName> first_objects() {
    return {{"Secret", "mnist-u1"},
            {"Service", "mnist-head"},
            {"Service", "mnist"},
            {"NetworkPolicy", "mnist"}};
  }
  [[nodiscard]] static Json our_head_service() {
    Json service = {
        {"metadata", {{"name", "mnist-head"}, {"namespace", "default"}, {"uid", "s1"}}}};
    service["metadata"]["labels"][std::string(kUidLabel)] = "u1";
    service["metadata"]["ownerReferences"] = Json::array({{{"uid", "u1"}, {"controller", true}}});
    return service;
  }
  bool leads() {
    if (leads_for_ == 0) return false;
    if (leads_for_ > 0) --leads_for_;
    return leads_;
  }
  [[nodiscard]] const Kind& kind_of_services() const { return *find_kind(kinds_, "v1", "Service"); }
  [[nodiscard]] std::string name_made_by_call(size_t call) {
    return text_at(Json::parse(script_->asked().at(call).body), {"metadata", "name"});
  }
  [[nodiscard]] bool is_created(const ObjectName& object) {
    return record().expected.is_created(object);
  }
  [[nodiscard]] JobRecord& record() { return *table_.find("default/u1")->lock(); }
  [[nodiscard]] std::string log_text() {
    std::fflush(file_);
    std::string text(size_t{1} << 16U, '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

  Json job_;
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  VirtualSurroundings time_;
  Client client_{std::make_unique<ScriptedTransport>(script_), {}, time_.make()};
  const std::vector<Kind> kinds_ = kinds_of({});
  OperatorMetrics metrics_;
  std::FILE* file_ = std::tmpfile();
  OperatorLog log_{file_};
  Performer performer_{client_, "me", fill_with_uid, metrics_};
  JobTable table_;
  WorkQueue queue_{[this] { return time_.now; }};
  bool leads_ = true;
  int leads_for_ = -1;  ///< So many more actions; -1: on and on.
  JobWorker worker_{{.kinds = kinds_},         table_, queue_, performer_, metrics_, log_,
                    [this] { return leads(); }};
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
};

TEST_F(JobWorkers, PerformsADecisionInItsOrderAndKnowsWhatToExpect) {
  answer_status();
  for (int i = 0; i < 5; ++i) answer_done();
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status", "POST Secret/secrets", "POST Service/services",
                                   "POST Service/services", "POST NetworkPolicy/networkpolicies",
                                   "POST Event/events"));
  const Json secret = Json::parse(script_->asked()[1].body);
  EXPECT_EQ(secret["data"]["head"], "dTE=");  // base64 of "u1"
  for (const ObjectName& object : first_objects()) EXPECT_TRUE(is_created(object));
  EXPECT_EQ(record().job["metadata"]["resourceVersion"], "6");
  EXPECT_TRUE(record().expected.status_written.has_value());
}

TEST_F(JobWorkers, WritesNothingOnceItLeadsNoMore) {
  leads_ = false;
  look();
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(JobWorkers, SaysWhatItHasCountedThoughItLeadsNoMore) {
  leads_for_ = 1;
  answer_status();
  answer_done();
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status", "POST Event/events"));
}

TEST_F(JobWorkers, AStopLetsTheWriteThatIsUnderWayEndAndTheEventsThatTellOfIt) {
  answer_status(true, [this] {
    leads_ = false;
    stopping_.request_stop();
  });
  answer_done();
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status", "POST Event/events"));
}

// mpijob same: case.resume-failure
TEST_F(JobWorkers, AStaleStatusIsTakenAnewAndNothingElseIsDone) {
  answer(409, refusal(409, "Conflict", "the object has been modified"));
  Json newer = job_;
  newer["metadata"]["resourceVersion"] = "8";
  answer(200, text_of(newer));
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status", "GET /mnist"));
  EXPECT_EQ(record().job["metadata"]["resourceVersion"], "8");
  EXPECT_FALSE(queue_.try_take().has_value());
  time_.now = time_.now + std::chrono::milliseconds(50);
  EXPECT_TRUE(queue_.try_take().has_value());
}

TEST_F(JobWorkers, ARefusedObjectIsNotedWithTheServersWordsAndTheJobIsLookedAtAtOnce) {
  answer_status();
  answer(403, refusal(403, "Forbidden", "exceeded quota: few"));
  look();
  EXPECT_EQ(calls().size(), 2U);
  EXPECT_FALSE(record().expected.asked().has_value());
  ASSERT_EQ(record().refused.size(), 1U);
  EXPECT_THAT(record().refused.begin()->second.message, HasSubstr("exceeded quota: few"));
  EXPECT_EQ(record().refused.begin()->second.wrong_generation, 0);
  for (const ObjectName& object : first_objects()) EXPECT_FALSE(is_created(object));
  EXPECT_TRUE(queue_.try_take().has_value());
  EXPECT_THAT(log_text(), HasSubstr("exceeded quota"));
}

TEST_F(JobWorkers, AnObjectThatIsWrongIsNotedWithTheManifestThatHasIt) {
  answer_status();
  answer(422, refusal(422, "Invalid", "spec: Required value"));
  look();
  ASSERT_EQ(record().refused.size(), 1U);
  EXPECT_EQ(record().refused.begin()->second.wrong_generation, 1);
}

TEST_F(JobWorkers, PodsOfCorroJobsAloneMayNotHaveUnknownFields) {
  const auto query_of_create = [&](const char* job, const char* kind, const char* api_version) {
    answer(400, refusal(400, "BadRequest", "strict decoding error: unknown field"));
    const Outcome outcome = performer_.perform(
        kinds_of({}), {job, "default", "mnist", "u1"},
        {.api_version = api_version, .object = {kind, "a"}, .body = Json::object()}, stop_);
    EXPECT_EQ(outcome.ended, Ended::kRefused);
    EXPECT_THAT(outcome.message, HasSubstr("unknown field"));
    const std::string target = script_->asked().back().target;
    return target.substr(target.find('?'));
  };
  EXPECT_THAT(query_of_create("CorroJob", "Pod", "v1"), HasSubstr("&fieldValidation=Strict"));
  EXPECT_THAT(query_of_create("CorroJob", "Service", "v1"), Not(HasSubstr("Validation")));
  EXPECT_THAT(query_of_create("MPIJob", "Pod", "v1"), Not(HasSubstr("Validation")));
}

TEST_F(JobWorkers, AnObjectOfSomebodyElseIsForeignAndOneOfTheJobIsDone) {
  answer_status();
  answer_done();
  answer(409, refusal(409, "AlreadyExists", "services exists"));
  answer(200, text_of(our_head_service()));
  answer(409, refusal(409, "AlreadyExists", "services exists"));
  answer(200, R"({"metadata": {"name": "mnist"}})");
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status", "POST Secret/secrets", "POST Service/services",
                                   "GET /mnist-head", "POST Service/services", "GET /mnist"));
  EXPECT_TRUE(is_created({"Service", "mnist-head"}));
  EXPECT_FALSE(is_created({"Service", "mnist"}));
  EXPECT_TRUE(record().foreign.contains({"Service", "mnist"}));
}

TEST_F(JobWorkers, ASecretThatIsThereIsNotRead) {
  answer_status();
  answer(409, refusal(409, "AlreadyExists", "secrets exists"));
  for (int i = 0; i < 4; ++i) answer_done();
  look();
  EXPECT_EQ(calls().size(), 6U);
  for (const ObjectName& object : first_objects()) EXPECT_TRUE(is_created(object));
}

TEST_F(JobWorkers, ASecretWhoseAnswerWasLostIsMadeAgainLater) {
  answer_status();
  cut_after_sending();
  look();
  EXPECT_FALSE(is_created(first_objects()[0]));
  EXPECT_FALSE(queue_.try_take().has_value());  // Not at once.
  answer_status();
  answer(409, refusal(409, "AlreadyExists", "secrets exists"));
  look();
  EXPECT_EQ(calls()[2], "PATCH /status");
  EXPECT_EQ(calls()[3], "POST Secret/secrets");
  EXPECT_TRUE(is_created(first_objects()[0]));
}

TEST_F(JobWorkers, WhatALostAnswerWasAboutIsLookedUpBeforeTheNextDecision) {
  lose_the_head_services_answer();
  answer(403, refusal(403, "Forbidden", "not now"));
  look();
  EXPECT_EQ(calls().size(), 4U);  // Nothing is decided.
  EXPECT_FALSE(queue_.try_take().has_value());
  answer(200, text_of(our_head_service()));
  answer_status();
  answer_done();
  look();
  EXPECT_TRUE(is_created({"Service", "mnist-head"}));
  EXPECT_EQ(calls()[4], "GET /mnist-head");
  EXPECT_EQ(name_made_by_call(6), "mnist");
  // Only what a watch tells of this very object ends the expectation.
  Json told = our_head_service();
  told["metadata"]["uid"] = "older";
  table_.changed(kind_of_services(), told);
  table_.gone(kind_of_services(), told);
  EXPECT_TRUE(is_created({"Service", "mnist-head"}));
  table_.changed(kind_of_services(), our_head_service());
  EXPECT_FALSE(is_created({"Service", "mnist-head"}));
}

TEST_F(JobWorkers, WhatWasNotMadeIsMadeOnceTheServerSaysSo) {
  lose_the_head_services_answer();
  answer(404, refusal(404, "NotFound", "services \"mnist-head\" not found"));
  answer_status();
  answer_done();
  look();
  EXPECT_EQ(calls()[3], "GET /mnist-head");
  EXPECT_EQ(name_made_by_call(5), "mnist-head");
}

TEST_F(JobWorkers, WhatAWatchHasToldBeforeTheAnswerIsExpectedNoMore) {
  lose_the_head_services_answer();
  table_.changed(kind_of_services(), our_head_service());
  table_.gone(kind_of_services(), our_head_service());
  answer(200, text_of(our_head_service()));
  answer_status();
  answer_done();
  look();
  EXPECT_EQ(name_made_by_call(5), "mnist-head");  // It has gone.
}

TEST_F(JobWorkers, AServerThatDropsTheStatusIsToldOfAndNotAskedOften) {
  answer_status(false);
  look();
  EXPECT_THAT(calls(), ElementsAre("PATCH /status"));
  EXPECT_THAT(log_text(), HasSubstr("the status was not kept"));
  time_.now = time_.now + std::chrono::seconds(29);
  EXPECT_FALSE(queue_.try_take().has_value());
  time_.now = time_.now + std::chrono::seconds(1);
  EXPECT_TRUE(queue_.try_take().has_value());
}

TEST_F(JobWorkers, AFailedEventStopsNothing) {
  answer_status();
  for (int i = 0; i < 4; ++i) answer_done();
  answer(403, refusal(403, "Forbidden", "no events"));
  look();
  EXPECT_THAT(log_text(), HasSubstr("no events"));
  time_.now = time_.now + std::chrono::milliseconds(200);
  EXPECT_FALSE(queue_.try_take().has_value());
}

TEST_F(JobWorkers, MetricsTellCallsAndRestarts) {
  answer_status();
  for (int i = 0; i < 5; ++i) answer_done();
  look();
  metrics_.restarted("lostPod", 2);
  const std::string text = metrics_.text({.leads = true, .jobs = {{{"CorroJob", "Running"}, 3}}});
  EXPECT_THAT(text, HasSubstr("corro_operator_leads 1\n"));
  EXPECT_THAT(text, HasSubstr(R"(corro_operator_jobs{kind="CorroJob",state="Running"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(corro_operator_restarts_total{cause="lostPod"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(corro_operator_api_calls_total{verb="create",result="done"} 4)"));
  EXPECT_THAT(text, HasSubstr(R"(corro_operator_api_seconds_count{verb="status"} 1)"));
}

TEST(SecondsHistogram, CountsUpToEachBound) {
  SecondsHistogram histogram;
  for (const double seconds : {0.004, 0.3, 5000.0}) histogram.observe(seconds);
  std::string text;
  histogram.write(text, "x", "");
  EXPECT_THAT(text, HasSubstr("x_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("x_bucket{le=\"0.5\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("x_bucket{le=\"1800\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("x_bucket{le=\"+Inf\"} 3\nx_sum 5000.304\nx_count 3\n"));
}

}  // namespace
}  // namespace corro::kube
