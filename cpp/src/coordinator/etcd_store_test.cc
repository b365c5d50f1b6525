#include "coordinator/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/client/scripted_transport.h"

namespace corro::coordinator {
namespace {

using kube::Json;
using kube::Request;
using kube::Script;
using std::chrono::seconds;
using testing::HasSubstr;

/// A store above two endpoints that say what they were told to.
class EtcdStoreTest : public testing::Test {
 protected:
  void answer(const std::string& text, int status = 200) { add(*first_, text, status); }
  static void add(Script& script, const std::string& text, int status = 200) {
    script.add({.status = status, .pieces = {text}});
  }
  static void fail(Script& script, Code code, const std::string& message) {
    script.add({.status = 0, .end = {code, message}});
  }
  [[nodiscard]] EtcdStore make_store(bool has_two = false) {
    std::vector<std::unique_ptr<kube::Transport>> endpoints;
    endpoints.push_back(std::make_unique<kube::ScriptedTransport>(first_));
    if (has_two) endpoints.push_back(std::make_unique<kube::ScriptedTransport>(second_));
    const auto now = [this] { return now_; };
    return {EtcdClient(std::move(endpoints), now), "/job", now};
  }
  /// Answers as etcd does to one who may lead.
  void let_lead() {
    answer(R"({"header":{"revision":"6"}})");
    answer(R"({"header":{},"ID":"77","TTL":"5"})");
    answer(transaction(true, leader(7, "me", "77")));
  }
  /// The answer to a range of the leader's key; "me" is bWU=, "other" b3RoZXI=.
  static std::string leader(int term, const std::string& name, const std::string& lease) {
    return fmt::format(
        R"({{"kvs":[{{"key":"eA==","create_revision":"{}","value":"{}","lease":"{}"}}]}})", term,
        kube::encode_base64(name), lease);
  }
  /// The answer to a transaction whose last step is a range; one that has succeeded has put, too.
  static std::string transaction(bool has_succeeded, const std::string& range) {
    return fmt::format(R"({{"header":{{}},{}{{"response_range":{}}}]}})",
                       has_succeeded ? R"("succeeded":true,"responses":[{"response_put":{}},)"
                                     : R"("responses":[)",
                       range);
  }

  static constexpr const char* kWritten =
      R"({"header":{"revision":"8"},"succeeded":true,"responses":[{"response_put":{}}]})";
  const std::shared_ptr<Script> first_ = std::make_shared<Script>();
  const std::shared_ptr<Script> second_ = std::make_shared<Script>();
  Time now_ = Time{seconds(100)};
};

TEST_F(EtcdStoreTest, ALeaderPutsItsNameUnderALeaseIfNobodyLeads) {
  EtcdStore store = make_store();
  let_lead();
  const auto term = store.try_lead("me");
  ASSERT_TRUE(term.ok()) << term.status().to_string();
  EXPECT_EQ(*term, std::optional<uint64_t>(7));
  EXPECT_EQ(store.leads_until(), now_ + seconds(4));
  const std::vector<Request> asked = first_->asked();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].method + " " + asked[0].target, "POST /v3/kv/range");
  EXPECT_EQ(asked[0].body, R"({"key":"L2pvYi9sZWFkZXI="})");
  EXPECT_EQ(asked[1].target + asked[1].body, R"(/v3/lease/grant{"TTL":"5"})");
  EXPECT_EQ(asked[2].target, "/v3/kv/txn");
  const Json range = Json::parse(R"({"request_range":{"key":"L2pvYi9sZWFkZXI="}})");
  const Json put =
      Json::parse(R"({"request_put":{"key":"L2pvYi9sZWFkZXI=","value":"bWU=","lease":"77"}})");
  const Json compare = Json::parse(
      R"({"key":"L2pvYi9sZWFkZXI=","target":"CREATE","result":"EQUAL","create_revision":"0"})");
  const Json want = {{"compare", Json::array({compare})},
                     {"success", Json::array({put, range})},
                     {"failure", Json::array({range})}};
  EXPECT_EQ(Json::parse(asked[2].body), want);
}

TEST_F(EtcdStoreTest, ALeadThatWasAskedForTwiceIsOne) {
  EtcdStore store = make_store(true);
  answer("{}");
  answer(R"({"ID":"77","TTL":"5"})");
  fail(*first_, Code::kDeadlineExceeded, "a: no answer in time");
  add(*second_, transaction(false, leader(7, "me", "77")));
  const auto term = store.try_lead("me");
  ASSERT_TRUE(term.ok()) << term.status().to_string();
  EXPECT_EQ(*term, std::optional<uint64_t>(7));
}

TEST_F(EtcdStoreTest, WhoComesTooLateGivesItsLeaseBack) {
  EtcdStore store = make_store();
  answer("{}");
  answer(R"({"ID":"77","TTL":"5"})");
  answer(transaction(false, leader(7, "other", "78")));
  answer("{}");
  const auto term = store.try_lead("me");
  ASSERT_TRUE(term.ok()) << term.status().to_string();
  EXPECT_EQ(*term, std::nullopt);
  EXPECT_EQ(first_->asked().back().target + first_->asked().back().body,
            R"(/v3/lease/revoke{"ID":"77"})");
}

TEST_F(EtcdStoreTest, AWriteComparesTheTerm) {
  EtcdStore store = make_store();
  let_lead();
  ASSERT_TRUE(store.try_lead("me").ok());
  answer(kWritten);
  EXPECT_TRUE(store.write("text").ok());
  const Json body = Json::parse(first_->asked().back().body);
  EXPECT_EQ(body["compare"][0]["create_revision"], "7");
  EXPECT_EQ(body["success"][0]["request_put"]["value"], "dGV4dA==");
  answer(transaction(false, leader(9, "other", "78")));
  const Status refused = store.write("late");
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_EQ(refused.message(), "etcd /job: other leads, so this one may not change the record");
  EXPECT_EQ(store.leads_until(), Time{});
}

TEST_F(EtcdStoreTest, AWriteThatComesLateFindsTheRecordChanged) {
  EtcdStore store = make_store();
  let_lead();
  ASSERT_TRUE(store.try_lead("me").ok());
  const auto compared = [this] {
    return Json::parse(first_->asked().back().body)["compare"][1]["mod_revision"];
  };
  // There is a record of an earlier leader.
  answer(fmt::format(R"({{"responses":[{{"response_range":{}}},{}]}})", leader(7, "me", "77"),
                     R"({"response_range":{"kvs":[{"mod_revision":"5"}]}})"));
  answer(kWritten);
  EXPECT_TRUE(store.write("one").ok());
  EXPECT_EQ(compared(), "5");
  fail(*first_, Code::kDeadlineExceeded, "a: no answer in time");
  EXPECT_FALSE(store.write("two").ok());
  EXPECT_EQ(compared(), "8");
  // "two" may be carried out from now on, until "three" is there: they compare the same revision.
  answer(kWritten);
  EXPECT_TRUE(store.write("three").ok());
  EXPECT_EQ(compared(), "8");
}

TEST_F(EtcdStoreTest, ARenewalCountsFromBeforeItsRequest) {
  EtcdStore store = make_store();
  let_lead();
  ASSERT_TRUE(store.try_lead("me").ok());
  now_ = now_ + seconds(1);
  const Time begin = now_;
  first_->add({.pieces = {R"({"result":{"ID":"77","TTL":"5"}})"},
               .meanwhile = [this] { now_ = now_ + std::chrono::milliseconds(300); }});
  answer(leader(7, "me", "77"));
  EXPECT_TRUE(store.renew().ok());
  EXPECT_EQ(store.leads_until(), begin + seconds(4));
}

TEST_F(EtcdStoreTest, ARenewalThatReachesNobodyLeavesTheLeadAsItIs) {
  EtcdStore store = make_store();
  let_lead();
  ASSERT_TRUE(store.try_lead("me").ok());
  const Time until = store.leads_until();
  now_ = now_ + seconds(1);
  fail(*first_, Code::kUnavailable, "a: cannot connect");
  EXPECT_EQ(store.renew().code(), Code::kUnavailable);
  // Kept alive, but it is not known for whom.
  answer(R"({"result":{"ID":"77","TTL":"5"}})");
  fail(*first_, Code::kDeadlineExceeded, "a: no answer in time");
  EXPECT_EQ(store.renew().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(store.leads_until(), until);
}

TEST_F(EtcdStoreTest, ALeaseThatHasEndedIsALostLead) {
  EtcdStore store = make_store();
  let_lead();
  ASSERT_TRUE(store.try_lead("me").ok());
  answer(R"({"result":{"ID":"77"}})");  // TTL 0 is left out.
  answer("{}");
  const Status lost = store.renew();
  EXPECT_EQ(lost.code(), Code::kAborted);
  EXPECT_THAT(lost.message(), HasSubstr("nobody leads"));
  EXPECT_EQ(store.leads_until(), Time{});
  fail(*first_, Code::kUnavailable, "a: cannot connect");
  EXPECT_EQ(store.renew().code(), Code::kAborted);
}

TEST_F(EtcdStoreTest, AnEndpointThatCannotBeReachedIsLeftForTheNextOne) {
  EtcdStore store = make_store(true);
  fail(*first_, Code::kUnavailable, "a: cannot connect");
  add(*second_, R"({"kvs":[{"value":"dGV4dA=="}]})");
  add(*second_, "{}");
  EXPECT_EQ(*store.read(), "text");
  EXPECT_EQ(*store.read(), "");
  EXPECT_EQ(first_->asked().size(), 1U);
  // An endpoint that knows no leader of the cluster.
  add(*second_, R"({"code":14,"message":"etcdserver: no leader"})", 503);
  answer(R"({"kvs":[{"value":"dGV4dA=="}]})");
  EXPECT_EQ(*store.read(), "text");
}

TEST_F(EtcdStoreTest, AllEndpointsThatCannotBeReachedAreNamed) {
  EtcdStore store = make_store(true);
  fail(*first_, Code::kUnavailable, "a: cannot connect");
  fail(*second_, Code::kDeadlineExceeded, "b: no answer in time");
  const Status both = store.read().status();
  EXPECT_EQ(both.code(), Code::kUnavailable);
  EXPECT_EQ(both.message(), "a: cannot connect; b: no answer in time");
  fail(*first_, Code::kUnauthenticated, "a: the server's certificate is refused");
  fail(*second_, Code::kUnauthenticated, "b: the server's certificate is refused");
  EXPECT_EQ(store.read().status().code(), Code::kUnauthenticated);
}

TEST_F(EtcdStoreTest, WhatEtcdRefusesIsToldInItsWords) {
  EtcdStore store = make_store(true);
  answer(R"({"error":"e","code":8,"message":"etcdserver: mvcc: database space exceeded"})", 429);
  const Status full = store.read().status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_EQ(full.message(), "etcd: etcdserver: mvcc: database space exceeded");
  answer("Not Found\n", 404);
  const Status other = store.read().status();
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("no etcd 3.4 or later with its JSON gateway"));
  answer("<html>", 200);
  EXPECT_EQ(store.read().status().code(), Code::kDataLoss);
  EXPECT_TRUE(second_->asked().empty());
}

}  // namespace
}  // namespace corro::coordinator
