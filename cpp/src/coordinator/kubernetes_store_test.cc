#include "coordinator/kubernetes_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "coord/record_store_suite.h"
#include "coordinator/fake_api_server.h"
#include "kube/client/scripted_transport.h"

namespace corro::coordinator {
namespace {

using kube::Json;
using Fate = FakeApiServer::Fate;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr const char* kLease = "leases/job7-head";
constexpr const char* kRecord = "configmaps/job7-record";

/// A server, and coordinators whose clocks differ.
struct Cluster {
  const std::shared_ptr<FakeApiServer> server = std::make_shared<FakeApiServer>();
  kube::VirtualSurroundings time = {};

  [[nodiscard]] std::unique_ptr<KubernetesStore> open(Duration ahead = Duration::zero()) {
    kube::Surroundings surroundings = time.make();
    surroundings.now = [this, ahead] { return time.now + ahead; };
    surroundings.wall = [this, ahead] {
      const Duration since = (time.now - ahead).since_start;
      return UnixTime(std::chrono::duration_cast<std::chrono::microseconds>(since));
    };
    auto client = std::make_unique<kube::Client>(std::make_unique<FakeApiTransport>(server),
                                                 kube::ClientOptions(), std::move(surroundings));
    return std::make_unique<KubernetesStore>(std::move(client), kube::ObjectKey{"space", "job7"});
  }
  /// As an administrator may end a lead.
  void release() const {
    if (!server->objects.contains(kLease)) return;
    server->edit(kLease, [](Json& lease) { lease["spec"]["holderIdentity"] = ""; });
  }
  [[nodiscard]] Json spec() const { return server->objects.at(kLease).at("spec"); }
  [[nodiscard]] std::string record() const {
    const auto found = server->objects.find(kRecord);
    if (found == server->objects.end()) return "";
    return kube::decode_base64(kube::text_at(found->second, {"binaryData", "record"})).value();
  }
};

class FakeKubernetesWorld final : public coord::RecordStoreWorld {
 public:
  [[nodiscard]] std::unique_ptr<coord::RecordStore> open() override { return cluster_.open(); }
  void end_lead() override { cluster_.release(); }
  [[nodiscard]] Time now() const override { return cluster_.time.now; }

 private:
  Cluster cluster_;
};

std::unique_ptr<coord::RecordStoreWorld> make_kubernetes_world() {
  return std::make_unique<FakeKubernetesWorld>();
}

class KubernetesStoreTest : public testing::Test {
 protected:
  static uint64_t lead(KubernetesStore& store, const std::string& name) {
    const auto term = store.try_lead(name);
    EXPECT_TRUE(term.ok()) << term.status().to_string();
    EXPECT_TRUE(term.ok() && *term) << name << " does not lead";
    return term.ok() ? term->value_or(0) : 0;
  }
  static bool is_refused(KubernetesStore& store) {
    const auto term = store.try_lead("one too many");
    EXPECT_TRUE(term.ok()) << term.status().to_string();
    return term.ok() && !*term;
  }
  static void write(KubernetesStore& store, const std::string& record) {
    const Status written = store.write(record);
    EXPECT_TRUE(written.ok()) << written.to_string();
  }
  /// The next such call has this fate, after `meanwhile`; all others are done.
  void next(const std::string& call, Fate fate, const std::function<void()>& meanwhile = [] {}) {
    const auto is_over = std::make_shared<bool>(false);  // Shared by copies of the function.
    cluster_.server->fate = [=](const std::string& made) {
      if (*is_over || made != call) return Fate::kDone;
      *is_over = true;
      meanwhile();
      return fate;
    };
  }
  void pass(Duration duration) { cluster_.time.now = cluster_.time.now + duration; }

  Cluster cluster_;
  const std::unique_ptr<KubernetesStore> first_ = cluster_.open();
  const std::unique_ptr<KubernetesStore> second_ = cluster_.open(hours(5));
};

TEST_F(KubernetesStoreTest, ShowsPeopleWhatTheJobDoesBesideWhatOthersKeepThere) {
  const auto store = cluster_.open();
  (void)lead(*store, "one");
  cluster_.server->objects["configmaps/job7-progress"] =
      Json::parse(R"({"metadata": {"labels": {"a": "b"}, "resourceVersion": "1"}})");
  store->show(R"({"step": 1})");
  store->show(R"({"step": 2})");
  const Json& map = cluster_.server->objects.at("configmaps/job7-progress");
  EXPECT_EQ(map.at("data").at("progress"), R"({"step": 2})");
  EXPECT_EQ(map.at("metadata").at("labels").at("a"), "b");
  next("GET configmaps/job7-progress", Fate::kForbidden);
  store->show(R"({"step": 3})");
  EXPECT_TRUE(store->renew().ok()) << "that nobody is shown anything ends no lead";
}

TEST_F(KubernetesStoreTest, ALeadIsALeaseThatIsRenewed) {
  EXPECT_EQ(lead(*first_, "host1, process 1"), 1U);
  const Json taken = cluster_.spec();
  EXPECT_EQ(taken["holderIdentity"], "host1, process 1");
  EXPECT_EQ(taken["leaseDurationSeconds"], 5);
  EXPECT_EQ(taken["leaseTransitions"], 1);
  EXPECT_EQ(taken["acquireTime"], "1970-01-01T01:00:00.000000Z");
  EXPECT_EQ(taken["renewTime"], taken["acquireTime"]);
  EXPECT_EQ(cluster_.server->objects.at(kLease)["kind"], "Lease");
  pass(seconds(1));
  EXPECT_TRUE(first_->renew().ok());
  EXPECT_EQ(cluster_.spec()["renewTime"], "1970-01-01T01:00:01.000000Z");
  EXPECT_EQ(cluster_.spec()["acquireTime"], taken["acquireTime"]);
  EXPECT_EQ(cluster_.spec()["leaseTransitions"], 1);
  first_->resign();
  EXPECT_EQ(cluster_.spec()["holderIdentity"], "");
  EXPECT_EQ(lead(*first_, "host1, process 1"), 2U) << "each lead has a term of its own";
}

TEST_F(KubernetesStoreTest, ARenewalCountsFromBeforeItsRequest) {
  lead(*first_, "first");
  pass(seconds(1));
  const Time begin = cluster_.time.now;
  next("PUT leases/job7-head", Fate::kDone, [this] { pass(milliseconds(300)); });
  EXPECT_TRUE(first_->renew().ok());
  EXPECT_EQ(first_->leads_until(), begin + seconds(4));
}

TEST_F(KubernetesStoreTest, ALeaseEndsForWhoHasSeenItUnchangedForItsTime) {
  const uint64_t term = lead(*first_, "first");
  write(*first_, "old");
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(is_refused(*second_));
    pass(seconds(1));
    EXPECT_TRUE(first_->renew().ok());
  }
  EXPECT_TRUE(is_refused(*second_));
  pass(seconds(5) - milliseconds(1));
  EXPECT_TRUE(is_refused(*second_));
  EXPECT_EQ(*second_->leader(), "first");
  pass(milliseconds(1));
  EXPECT_EQ(*second_->leader(), "");
  EXPECT_GT(lead(*second_, "second"), term);
  EXPECT_EQ(first_->write("stale").code(), Code::kAborted);
  EXPECT_EQ(*second_->read(), "old");
}

TEST_F(KubernetesStoreTest, WhoHasJustStartedWaitsForAWholeLease) {
  lead(*first_, "first");
  pass(hours(1));
  EXPECT_TRUE(is_refused(*second_));
  pass(seconds(5));
  lead(*second_, "second");
}

TEST_F(KubernetesStoreTest, ALeaseThatIsRenewedAfterTheLookIsNotTaken) {
  lead(*first_, "first");
  EXPECT_TRUE(is_refused(*second_));
  pass(seconds(5));
  next("PUT leases/job7-head", Fate::kDone, [this] { EXPECT_TRUE(first_->renew().ok()); });
  EXPECT_TRUE(is_refused(*second_));
  write(*first_, "still leads");
}

TEST_F(KubernetesStoreTest, OfTwoThatFindNobodyOneLeads) {
  next("POST leases/job7-head", Fate::kDone, [this] { lead(*second_, "second"); });
  EXPECT_TRUE(is_refused(*first_));
  second_->resign();
  next("PUT leases/job7-head", Fate::kDone, [this] { lead(*second_, "second"); });
  EXPECT_TRUE(is_refused(*first_));
  EXPECT_EQ(cluster_.spec()["holderIdentity"], "second");
}

TEST_F(KubernetesStoreTest, AWriteOfAnEarlierLeaderFailsBeforeTheNextOneHasWritten) {
  lead(*first_, "first");
  write(*first_, "old");
  next("PUT configmaps/job7-record", Fate::kLate);
  EXPECT_EQ(first_->write("late").code(), Code::kDeadlineExceeded);
  cluster_.release();
  lead(*second_, "second");
  cluster_.server->deliver();
  EXPECT_EQ(*second_->read(), "old");
  const Status stale = first_->write("stale");
  EXPECT_EQ(stale.code(), Code::kAborted);
  EXPECT_THAT(stale.message(), HasSubstr("kubernetes space/job7: second leads"));
  EXPECT_EQ(*second_->read(), "old");
}

TEST_F(KubernetesStoreTest, ALeadBeginsWithWhateverTheEarlierLeaderWasFasterWith) {
  lead(*first_, "first");
  write(*first_, "old");
  cluster_.release();
  next("PUT configmaps/job7-record", Fate::kDone, [this] { write(*first_, "last word"); });
  lead(*second_, "second");
  EXPECT_EQ(*second_->read(), "last word");
  EXPECT_EQ(first_->write("stale").code(), Code::kAborted);
}

TEST_F(KubernetesStoreTest, WhoTakesTheLeadAnywhereInAWriteMakesItFail) {
  // A write that is refused at first: ConfigMap, ConfigMap, Lease, ConfigMap.
  for (int at = 1; at <= 4; ++at) {
    lead(*first_, "first");
    write(*first_, "old");
    cluster_.server->edit(kRecord, [](Json& record) { record["data"]["progress"] = "step"; });
    int calls = 0;
    cluster_.server->fate = [&](const std::string& /*call*/) {
      if (++calls == at) {
        cluster_.release();
        lead(*second_, "second");
      }
      return Fate::kDone;
    };
    EXPECT_EQ(first_->write("stale").code(), Code::kAborted) << at;
    EXPECT_GE(calls, at);
    EXPECT_EQ(*second_->read(), "old") << at;
    cluster_.server->fate = [](const std::string& /*call*/) { return Fate::kDone; };
    second_->resign();
  }
}

TEST_F(KubernetesStoreTest, AWriteThatComesLateFindsTheRecordChanged) {
  lead(*first_, "first");
  write(*first_, "one");
  next("PUT configmaps/job7-record", Fate::kLate);
  EXPECT_FALSE(first_->write("two").ok());
  write(*first_, "three");
  cluster_.server->deliver();
  EXPECT_EQ(cluster_.record(), "three");
}

TEST_F(KubernetesStoreTest, AWriteOfWhatIsThereKeepsALateOneAway) {
  lead(*first_, "first");
  write(*first_, "one");
  next("PUT configmaps/job7-record", Fate::kLate);
  EXPECT_FALSE(first_->write("two").ok());
  write(*first_, "one");
  cluster_.server->deliver();
  EXPECT_EQ(cluster_.record(), "one");
}

TEST_F(KubernetesStoreTest, AWriteWhoseAnswerWasLostIsWrittenOver) {
  lead(*first_, "first");
  next("PUT configmaps/job7-record", Fate::kUnanswered);
  EXPECT_FALSE(first_->write("one").ok());
  EXPECT_EQ(cluster_.record(), "one");
  write(*first_, "two");
  EXPECT_EQ(cluster_.record(), "two");
}

TEST_F(KubernetesStoreTest, ARenewalWhoseAnswerWasLostIsMadeAgain) {
  const uint64_t term = lead(*first_, "first");
  const Time until = first_->leads_until();
  for (const Fate fate : {Fate::kUnanswered, Fate::kLost}) {
    pass(seconds(1));
    next("PUT leases/job7-head", fate);
    EXPECT_EQ(first_->renew().code(), Code::kDeadlineExceeded);
    EXPECT_EQ(first_->leads_until(), until) << "it may not have been carried out";
  }
  EXPECT_TRUE(first_->renew().ok());
  EXPECT_EQ(first_->leads_until(), until + seconds(2));
  next("PUT leases/job7-head", Fate::kUnanswered);
  EXPECT_FALSE(first_->renew().ok());
  EXPECT_EQ(lead(*first_, "first"), term);
  next("PUT leases/job7-head", Fate::kUnanswered);
  EXPECT_FALSE(first_->renew().ok());
  first_->resign();
  EXPECT_EQ(cluster_.spec()["holderIdentity"], "");
}

TEST_F(KubernetesStoreTest, AWriteAfterTheLeadsTimeRenewsItFirst) {
  lead(*first_, "first");
  pass(seconds(4));
  write(*first_, "nobody else came");
  EXPECT_EQ(first_->leads_until(), cluster_.time.now + seconds(4));
  pass(seconds(4));
  cluster_.release();
  EXPECT_EQ(first_->write("nobody leads").code(), Code::kAborted);
  EXPECT_EQ(cluster_.record(), "nobody else came");
}

TEST_F(KubernetesStoreTest, ALeaseThatIsMadeAnewDoesNotTurnTermsBack) {
  first_->resign();
  lead(*first_, "first");
  first_->resign();
  const uint64_t term = lead(*first_, "first");
  cluster_.server->objects.erase(kLease);
  EXPECT_GT(lead(*second_, "second"), term);
  EXPECT_EQ(first_->renew().code(), Code::kAborted);
  EXPECT_EQ(first_->write("stale").code(), Code::kAborted);
}

TEST_F(KubernetesStoreTest, AnEarlierLeadOfTheSameTermIsNotTheLead) {
  EXPECT_EQ(lead(*first_, "one name"), 1U);
  cluster_.server->objects.clear();
  EXPECT_EQ(lead(*second_, "one name"), 1U) << "nothing is left that says more";
  EXPECT_EQ(first_->renew().code(), Code::kAborted);
  EXPECT_EQ(lead(*second_, "one name"), 1U);
}

TEST_F(KubernetesStoreTest, ALeaseThatIsRemovedIsALostLead) {
  lead(*first_, "first");
  cluster_.server->objects.erase(kLease);
  const Status lost = first_->renew();
  EXPECT_EQ(lost.code(), Code::kAborted);
  EXPECT_THAT(lost.message(), HasSubstr("nobody leads"));
  EXPECT_EQ(first_->leads_until(), Time{});
  EXPECT_FALSE(cluster_.server->objects.contains(kLease));
}

TEST_F(KubernetesStoreTest, ARecordThatIsRemovedIsMadeAnew) {
  const uint64_t term = lead(*first_, "first");
  write(*first_, "one");
  cluster_.server->objects.erase(kRecord);
  EXPECT_EQ(*first_->read(), "");
  write(*first_, "two");
  EXPECT_EQ(cluster_.record(), "two");
  EXPECT_EQ(cluster_.server->objects.at(kRecord)["data"]["term"], std::to_string(term));
}

TEST_F(KubernetesStoreTest, ARecordOfAHigherTermIsLeftAlone) {
  const uint64_t term = lead(*first_, "first");
  cluster_.server->edit(kRecord, [](Json& record) { record["data"]["term"] = "7"; });
  const Status refused = first_->write("stale");
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("one of term 7 leads"));
  EXPECT_EQ(first_->leads_until(), Time{});
  cluster_.release();
  EXPECT_EQ(lead(*first_, "first"), 8U);
  EXPECT_LT(term, 8U);
}

TEST_F(KubernetesStoreTest, WhatOthersHavePutBesideItStays) {
  lead(*first_, "first");
  cluster_.server->edit(kLease, [](Json& lease) {
    lease["metadata"]["labels"]["job"] = "job7";
    lease["spec"]["strategy"] = "theirs";
  });
  cluster_.server->edit(kRecord, [](Json& record) {
    record["metadata"]["ownerReferences"] = Json::array({{{"name", "job7"}}});
    record["data"]["progress"] = "step 7";
  });
  EXPECT_TRUE(first_->renew().ok());
  write(*first_, "one");
  first_->resign();
  lead(*second_, "second");
  write(*second_, "two");
  const Json& lease = cluster_.server->objects.at(kLease);
  EXPECT_EQ(lease["metadata"]["labels"]["job"], "job7");
  EXPECT_EQ(lease["spec"]["strategy"], "theirs");
  const Json& record = cluster_.server->objects.at(kRecord);
  EXPECT_EQ(record["metadata"]["ownerReferences"][0]["name"], "job7");
  EXPECT_EQ(record["data"]["progress"], "step 7");
}

TEST_F(KubernetesStoreTest, ObjectsWithoutFieldsAreThoseOfANewJob) {
  for (const char* place : {kLease, kRecord}) {
    cluster_.server->objects[place] = {{"metadata", {{"uid", "u"}, {"resourceVersion", "1"}}}};
  }
  EXPECT_EQ(*first_->leader(), "");
  EXPECT_EQ(*first_->read(), "");
  EXPECT_EQ(lead(*first_, "first"), 1U);
  write(*first_, "one");
  EXPECT_EQ(*second_->read(), "one");
}

TEST_F(KubernetesStoreTest, ARightThatIsMissingIsNamed) {
  const auto refusal = [this](const std::string& call) {
    next(call, Fate::kForbidden);
    const Status refused = first_->try_lead("first").status();
    EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.to_string();
    EXPECT_EQ(first_->leads_until(), Time{});
    return refused.message();
  };
  const std::string lease = "leases.coordination.k8s.io space/job7-head: 403 Forbidden: ";
  const std::string record = "configmaps space/job7-record: 403 Forbidden: ";
  EXPECT_THAT(refusal("GET leases/job7-head"), HasSubstr("no right to get " + lease));
  EXPECT_THAT(refusal("POST leases/job7-head"), HasSubstr("no right to create " + lease));
  EXPECT_THAT(refusal("GET configmaps/job7-record"), HasSubstr("no right to get " + record));
  EXPECT_THAT(refusal("POST configmaps/job7-record"), HasSubstr("no right to create " + record));
  EXPECT_THAT(refusal("PUT leases/job7-head"), HasSubstr("no right to update " + lease));
}

TEST_F(KubernetesStoreTest, WhoCannotWriteTheRecordGivesTheLeadBack) {
  next("POST configmaps/job7-record", Fate::kForbidden);
  EXPECT_FALSE(first_->try_lead("first").ok());
  lead(*second_, "second");
}

TEST_F(KubernetesStoreTest, TroubleOfTheServerIsOneThatPasses) {
  lead(*first_, "first");
  const Time until = first_->leads_until();
  for (const Fate fate : {Fate::kBroken, Fate::kBusy}) {
    cluster_.server->fate = [fate](const std::string& /*call*/) { return fate; };
    EXPECT_EQ(first_->renew().code(), Code::kUnavailable);
    EXPECT_EQ(first_->write("lost").code(), Code::kUnavailable);
    EXPECT_EQ(second_->try_lead("second").status().code(), Code::kUnavailable);
    EXPECT_EQ(first_->leads_until(), until);
  }
}

TEST_F(KubernetesStoreTest, ACallDoesNotTakeLongerThanItsTime) {
  lead(*first_, "first");
  const Time begin = cluster_.time.now;
  cluster_.server->fate = [this](const std::string& call) {
    pass(milliseconds(700));
    return call.starts_with("GET") ? Fate::kBusy : Fate::kUnanswered;
  };
  EXPECT_FALSE(first_->write("one").ok());
  EXPECT_FALSE(second_->try_lead("second").ok());
  EXPECT_LE(cluster_.time.now - begin, 2 * seconds(2));
}

TEST_F(KubernetesStoreTest, ATermThatIsNoneIsNotTakenForTheFirst) {
  lead(*first_, "first");
  first_->resign();
  for (const std::string text : {"x", "7x", "-1", "99999999999999999999", "2147483647"}) {
    cluster_.server->edit(kRecord, [&](Json& record) { record["data"]["term"] = text; });
    EXPECT_EQ(first_->try_lead("first").status().code(), Code::kDataLoss) << text;
  }
}

/// Three coordinators do what they may, while calls are lost, come late, and come between others. The
/// rules are checked after each of their calls. An administrator may end leads, so that more than one
/// believes to lead.
class Play {
 public:
  Play(uint32_t seed, bool has_administrator)
      : random_(seed), has_administrator_(has_administrator) {
    for (size_t i = 0; i < stores_.size(); ++i) {
      stores_[i] = cluster_.open(hours(7 * i));
    }
    cluster_.server->fate = [this](const std::string& call) { return choose_fate(call); };
  }
  void run() {
    for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
      pass(milliseconds(random_() % 900));
      act();
      if (is_chosen(10)) cluster_.server->deliver();
      check();
    }
  }
  [[nodiscard]] uint64_t last_term() const { return last_term_; }

 private:
  [[nodiscard]] bool is_chosen(uint32_t of) { return random_() % of == 0; }
  void pass(Duration duration) { cluster_.time.now = cluster_.time.now + duration; }
  [[nodiscard]] Time now_of(size_t i) const { return cluster_.time.now + hours(7 * i); }

  Fate choose_fate(const std::string& call) {
    if (is_chosen(20)) cluster_.server->deliver();
    if (!is_nested_ && is_chosen(12)) {
      is_nested_ = true;
      if (is_chosen(3)) pass(seconds(random_() % 7));
      act();
      is_nested_ = false;
    }
    pass(milliseconds(random_() % 100));
    if (!is_chosen(6)) return Fate::kDone;
    if (call.starts_with("GET")) return Fate::kLost;
    constexpr std::array kFates = {Fate::kLost, Fate::kUnanswered, Fate::kLate, Fate::kBroken};
    return kFates[random_() % kFates.size()];
  }
  /// One call by one of them, who is not in the middle of another call.
  void act() {
    if (has_administrator_ && is_chosen(20)) return end_lead();
    const size_t who = random_() % stores_.size();
    if (is_busy_[who]) return;
    is_busy_[who] = true;
    const size_t what = random_() % 10;
    if (terms_[who] == 0 || what == 0) {
      lead(who);
    } else if (what < 5) {
      note(who, stores_[who]->renew());
    } else if (what < 9) {
      write(who);
    } else {
      stores_[who]->resign();
      terms_[who] = 0;
    }
    is_busy_[who] = false;
  }
  void end_lead() {
    if (is_chosen(2)) return cluster_.release();
    cluster_.server->objects.erase(kLease);
  }
  void lead(size_t who) {
    const auto term = stores_[who]->try_lead(fmt::format("store {}", who));
    if (!term.ok() || !*term) {
      if (term.ok()) terms_[who] = 0;
      return;
    }
    if (**term != terms_[who]) {
      EXPECT_GT(**term, last_term_);
      last_term_ = **term;
      EXPECT_TRUE(possible_.contains(cluster_.record())) << cluster_.record();
      possible_ = {cluster_.record()};
    }
    terms_[who] = **term;
  }
  void write(size_t who) {
    // Sometimes what is there already.
    const std::string text = is_chosen(4) ? *possible_.begin() : std::to_string(++written_);
    const bool was_possible = possible_.contains(text);
    // While it is under way. Once the next lead has begun, it may come to nothing alone.
    if (terms_[who] == last_term_) possible_.insert(text);
    const Status status = stores_[who]->write(text);
    if (status.ok()) {
      EXPECT_EQ(terms_[who], last_term_) << "an earlier leader has written";
      EXPECT_EQ(cluster_.record(), text);
      possible_ = {text};
    } else if (status.code() == Code::kAborted && !was_possible) {
      possible_.erase(text);
    }
    note(who, status);
  }
  void note(size_t who, const Status& status) {
    if (status.code() == Code::kAborted) terms_[who] = 0;
  }
  void check() {
    size_t leaders = 0;
    for (size_t i = 0; i < stores_.size(); ++i) {
      leaders += now_of(i) < stores_[i]->leads_until() ? 1 : 0;
    }
    EXPECT_TRUE(has_administrator_ || leaders <= 1);
    EXPECT_TRUE(possible_.contains(cluster_.record())) << cluster_.record();
  }

  std::mt19937 random_;
  const bool has_administrator_;
  Cluster cluster_;
  std::array<std::unique_ptr<KubernetesStore>, 3> stores_;
  std::array<uint64_t, 3> terms_{};  ///< As each one believes; 0: it does not lead.
  std::array<bool, 3> is_busy_{};
  bool is_nested_ = false;
  uint64_t last_term_ = 0;
  uint64_t written_ = 0;
  std::set<std::string> possible_ = {""};  ///< Texts, of which the record is one now.
};

TEST(KubernetesStorePlay, OneLeadsAndItsWritesAloneCountWhateverIsLostOrLate) {
  uint64_t leads = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Play play(seed, seed % 2 == 0);
    play.run();
    leads += play.last_term();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(leads, 40U * 5);
}

}  // namespace
}  // namespace corro::coordinator

namespace corro::coord {
namespace {
INSTANTIATE_TEST_SUITE_P(Kubernetes, RecordStoreSuite,
                         testing::Values(&coordinator::make_kubernetes_world));
}  // namespace
}  // namespace corro::coord
