#include "kube/client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "kube/client/election.h"
#include "kube/client/scripted_transport.h"
#include "kube/client/watch.h"

namespace corro::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string status_text(int code, const std::string& reason, const std::string& message) {
  return text_of({{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}});
}

std::string page_of(const std::vector<std::string>& names, const std::string& version,
                    const std::string& next = "") {
  Json items = Json::array();
  for (const std::string& name : names) items.push_back({{"metadata", {{"name", name}}}});
  return text_of({{"kind", "PodList"},
                  {"metadata", {{"resourceVersion", version}, {"continue", next}}},
                  {"items", items}});
}

std::string event_text(const std::string& type, const std::string& name,
                       const std::string& version) {
  return text_of({{"type", type},
                  {"object", {{"metadata", {{"name", name}, {"resourceVersion", version}}}}}}) +
         "\n";
}

class Clients : public testing::Test {
 protected:
  explicit Clients(ClientOptions options = {})
      : client_(std::make_unique<ScriptedTransport>(script_), std::move(options), time_.make()) {}

  void answer(int status, const std::string& body, Headers headers = {}) {
    script_->add({.status = status, .headers = std::move(headers), .pieces = {body}});
  }
  void cut(bool was_sent) {
    script_->add({.status = 0, .end = {Code::kUnavailable, "cut"}, .was_sent = was_sent});
  }
  [[nodiscard]] std::vector<std::string> targets() {
    std::vector<std::string> all;
    for (const Request& request : script_->asked()) {
      all.push_back(request.method + " " + request.target);
    }
    return all;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  VirtualSurroundings time_;
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
  Client client_;
};

using ClientCalls = Clients;

TEST_F(ClientCalls, SendWhatTheServerExpects) {
  for (int i = 0; i < 7; ++i) answer(200, "{}");
  const ObjectKey key{"d", "a"};
  EXPECT_TRUE(client_.get(kPods, key, stop_).ok());
  EXPECT_TRUE(client_.create(kPods, key, {{"x", 1}}, stop_).ok());
  EXPECT_TRUE(client_.replace(kPods, key, {{"x", 1}}, stop_).ok());
  EXPECT_TRUE(client_.merge_patch(kPods, key, {{"status", {}}}, "status", stop_).ok());
  EXPECT_TRUE(client_.apply(kPods, key, {{"x", 1}}, "", stop_).ok());
  DeleteOptions options;
  options.uid = "u";
  options.grace_seconds = 0;
  EXPECT_TRUE(client_.remove(kPods, key, options, stop_).ok());
  EXPECT_TRUE(client_.get_path("/version", stop_).ok());
  EXPECT_THAT(targets(),
              ElementsAre("GET /api/v1/namespaces/d/pods/a",
                          "POST /api/v1/namespaces/d/pods?fieldManager=corro",
                          "PUT /api/v1/namespaces/d/pods/a?fieldManager=corro",
                          "PATCH /api/v1/namespaces/d/pods/a/status?fieldManager=corro",
                          "PATCH /api/v1/namespaces/d/pods/a?fieldManager=corro&force=true",
                          "DELETE /api/v1/namespaces/d/pods/a", "GET /version"));
  const auto asked = script_->asked();
  EXPECT_EQ(asked[3].content_type, "application/merge-patch+json");
  EXPECT_EQ(asked[4].content_type, "application/apply-patch+yaml");
  EXPECT_EQ(asked[5].body, R"({"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions",)"
                           R"("preconditions":{"uid":"u"},"propagationPolicy":"Background"})");
}

TEST_F(ClientCalls, TellTheServersReason) {
  const std::vector<std::tuple<int, std::string, Code>> table = {
      {404, "NotFound", Code::kNotFound},          {409, "AlreadyExists", Code::kAlreadyExists},
      {409, "Conflict", Code::kAborted},           {422, "Invalid", Code::kInvalidArgument},
      {403, "Forbidden", Code::kPermissionDenied}, {410, "Expired", Code::kOutOfRange},
  };
  for (const auto& [status, reason, code] : table) {
    answer(status, status_text(status, reason, "spec.containers[0]:\nRequired"));
    const auto created = client_.create(kPods, {"d", "a"}, {}, stop_);
    EXPECT_EQ(created.status().code(), code) << status;
    EXPECT_EQ(created.status().message(), "pods d/a: " + std::to_string(status) + " " + reason +
                                              ": spec.containers[0]: Required");
  }
  EXPECT_TRUE(time_.waits.empty());
}

TEST_F(ClientCalls, WaitAsTheServerAsks) {
  answer(429, "slow down", {{"retry-after", "3"}});
  answer(503, "", {{"retry-after", "1"}});
  answer(201, "{}");
  EXPECT_TRUE(client_.create(kPods, {"d", "a"}, {}, stop_).ok());
  EXPECT_THAT(time_.waits, ElementsAre(seconds(3), seconds(1)));
}

TEST_F(ClientCalls, AreNotMadeAgainIfTheServerMayHaveDoneThem) {
  cut(true);
  const auto created = client_.create(kPods, {"d", "a"}, {}, stop_);
  EXPECT_EQ(created.status().code(), Code::kUnavailable);
  EXPECT_EQ(created.status().message(), "pods d/a: cut");
  cut(false);
  cut(false);
  answer(201, "{}");
  EXPECT_TRUE(client_.create(kPods, {"d", "a"}, {}, stop_).ok());
  cut(true);
  answer(200, "{}");
  EXPECT_TRUE(client_.get(kPods, {"d", "a"}, stop_).ok());
  cut(true);
  EXPECT_EQ(client_.remove(kPods, {"d", "a"}, {}, stop_).code(), Code::kUnavailable);
}

TEST_F(ClientCalls, EndWithTheirTime) {
  answer(429, "", {{"retry-after", "31"}});
  EXPECT_EQ(client_.get(kPods, {"d", "a"}, stop_).status().code(), Code::kResourceExhausted);
  answer(429, "", {{"retry-after", "5"}});
  EXPECT_EQ(client_.get(kPods, {"d", "a"}, {stop_, time_.now + seconds(4)}).status().code(),
            Code::kResourceExhausted);
  stopping_.request_stop();
  EXPECT_EQ(client_.get(kPods, {"d", "a"}, stop_).status().code(), Code::kCancelled);
  EXPECT_EQ(script_->asked().size(), 2U);
}

TEST_F(ClientCalls, RefuseAnObjectOverTheCapByName) {
  answer(200, std::string(client_.options().most_object_bytes + 1, ' '));
  const auto got = client_.get(kPods, {"d", "a"}, stop_);
  EXPECT_EQ(got.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(got.status().message(), "pods d/a: is refused: more than 2097152 bytes");
}

class LimitedCalls : public Clients {
 protected:
  static ClientOptions limited() {
    ClientOptions options;
    options.qps = 10;
    options.burst = 2;
    options.most_object_bytes = 60;
    options.most_page_bytes = 300;
    options.page_objects = 16;
    return options;
  }
  LimitedCalls() : Clients(limited()) {}
};

TEST_F(LimitedCalls, ShareOneRateLimit) {
  for (int i = 0; i < 5; ++i) answer(200, "{}");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(client_.get_path("/version", stop_).ok());
  EXPECT_THAT(time_.waits, ElementsAre(milliseconds(100), milliseconds(100), milliseconds(100)));
}

TEST_F(LimitedCalls, ListPageByPageAndNameWhatIsTooLarge) {
  answer(200, page_of({"a", std::string(50, 'b')}, "7", "token"));
  answer(200, page_of({"c"}, "7"));
  const auto list = client_.list(kPods, "d", {"app=x", ""}, stop_);
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_EQ(list->objects.size(), 2U);
  EXPECT_THAT(list->refused, ElementsAre(std::string(50, 'b')));
  EXPECT_EQ(list->resource_version, "7");
  EXPECT_THAT(
      targets(),
      ElementsAre("GET /api/v1/namespaces/d/pods?labelSelector=app%3Dx&limit=16",
                  "GET /api/v1/namespaces/d/pods?labelSelector=app%3Dx&limit=16&continue=token"));
}

TEST_F(LimitedCalls, ListInSmallerPagesIfOneIsTooLong) {
  const std::string large = page_of({std::string(400, 'b')}, "7");
  for (int i = 0; i < 3; ++i) answer(200, large);
  const auto list = client_.list(kPods, "d", {}, stop_);
  EXPECT_EQ(list.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(targets(),
              ElementsAre(HasSubstr("limit=16"), HasSubstr("limit=2"), HasSubstr("limit=1")));
}

TEST_F(ClientCalls, BeginAListAgainWhoseContinuationExpired) {
  answer(200, page_of({"a"}, "7", "token"));
  answer(410, status_text(410, "Expired", "old"));
  answer(200, page_of({"b"}, "9"));
  const auto list = client_.list(kPods, "d", {}, stop_);
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_EQ(list->objects.size(), 1U);
  EXPECT_EQ(list->resource_version, "9");
}

/// What a watch told, as words, until `last` was told or it ended.
class Watches : public Clients {
 protected:
  Status run(const std::string& last) {
    return watch(
        client_, {kPods, "d", {}},
        [&](const WatchEvent& event) {
          told_.push_back(word_of(event));
          if (told_.back() == last) stopping_.request_stop();
        },
        stop_);
  }
  static std::string word_of(const WatchEvent& event) {
    using Kind = WatchEvent::Kind;
    const std::string name = text_at(event.object, {"metadata", "name"});
    switch (event.kind) {
      case Kind::kResynced:
        return "resynced " + std::to_string(event.objects.size());
      case Kind::kAdded:
        return "added " + name;
      case Kind::kModified:
        return "modified " + name;
      case Kind::kDeleted:
        return "deleted " + name;
      case Kind::kBookmark:
        return "bookmark " + event.resource_version;
      case Kind::kRefused:
        return "refused " + event.name;
      case Kind::kTrouble:
        return "trouble " + std::string(code_name(event.trouble.code()));
    }
    return "";
  }

  std::vector<std::string> told_;
};

TEST_F(Watches, GoOnBehindTheLastEventAfterACut) {
  answer(200, page_of({"a"}, "5"));
  script_->add({.pieces = {event_text("ADDED", "b", "6"), event_text("BOOKMARK", "", "8")}});
  const std::string cut = event_text("MODIFIED", "b", "9");
  script_->add({.pieces = {event_text("DELETED", "a", "9"), cut.substr(0, 20)}});
  script_->add({.status = 0, .end = {Code::kUnavailable, "refused"}});
  script_->add({.pieces = {event_text("MODIFIED", "b", "10")}});
  EXPECT_EQ(run("modified b").code(), Code::kCancelled);
  EXPECT_THAT(told_, ElementsAre("resynced 1", "added b", "bookmark 8", "deleted a",
                                 "trouble UNAVAILABLE", "trouble UNAVAILABLE", "modified b"));
  const auto asked = targets();
  ASSERT_EQ(asked.size(), 5U);
  EXPECT_THAT(asked[1], HasSubstr("?watch=true&allowWatchBookmarks=true&resourceVersion=5&"
                                  "timeoutSeconds=300"));
  EXPECT_THAT(asked[2], HasSubstr("resourceVersion=8&"));
  EXPECT_THAT(asked[3], HasSubstr("resourceVersion=9&"));
  EXPECT_THAT(asked[4], HasSubstr("resourceVersion=9&"));
}

TEST_F(Watches, ListAgainWhenTheVersionIsGone) {
  answer(200, page_of({"a"}, "5"));
  script_->add(
      {.pieces = {text_of({{"type", "ERROR"}, {"object", {{"code", 410}, {"reason", "Expired"}}}}) +
                  "\n"}});
  answer(200, page_of({"a", "b"}, "50"));
  answer(410, status_text(410, "Gone", "gone"));
  answer(200, page_of({}, "60"));
  EXPECT_EQ(run("resynced 0").code(), Code::kCancelled);
  EXPECT_THAT(told_, ElementsAre("resynced 1", "trouble OUT_OF_RANGE", "resynced 2",
                                 "trouble OUT_OF_RANGE", "resynced 0"));
}

TEST_F(Watches, WaitAsTheServerAsksAndEverLonger) {
  answer(200, page_of({}, "5"));
  answer(429, "", {{"retry-after", "9"}});
  for (int i = 0; i < 10; ++i) answer(200, "");
  script_->add({.pieces = {event_text("ADDED", "a", "6")}});
  EXPECT_EQ(run("added a").code(), Code::kCancelled);
  EXPECT_THAT(told_, ElementsAre("resynced 0", "trouble RESOURCE_EXHAUSTED", "added a"));
  EXPECT_EQ(time_.waits.front(), seconds(9));
  EXPECT_EQ(time_.waits.at(1), milliseconds(100));
  EXPECT_EQ(time_.waits.back(), seconds(15));
}

TEST_F(Watches, NameAnObjectThatIsTooLarge) {
  const std::string big(client_.options().most_object_bytes, 'x');
  answer(200, page_of({}, "5"));
  script_->add({.pieces = {text_of({{"type", "ADDED"},
                                    {"object", {{"metadata", {{"labels", big}, {"name", "n"}}}}}}) +
                               "\n",
                           event_text("ADDED", "a", "6")}});
  EXPECT_EQ(run("added a").code(), Code::kCancelled);
  EXPECT_THAT(told_, ElementsAre("resynced 0", "refused n", "added a"));
}

TEST_F(Watches, EndOnWhatCannotHeal) {
  answer(403, status_text(403, "Forbidden", "pods is forbidden"));
  const Status end = run("");
  EXPECT_EQ(end.code(), Code::kPermissionDenied);
  EXPECT_EQ(end.message(), "pods of d: 403 Forbidden: pods is forbidden");
}

TEST_F(Watches, AreStoppedFromAnotherThreadWhileTheyHang) {
  answer(200, page_of({}, "5"));
  script_->add({.pieces = {event_text("ADDED", "a", "6")}, .hangs = true});
  Status end;
  std::thread watching([&] { end = run(""); });
  {
    auto asked = script_->requests.lock();
    while (asked->size() < 2) asked.wait_for(milliseconds(10));
  }
  stopping_.request_stop();
  watching.join();
  EXPECT_EQ(end.code(), Code::kCancelled);
}

/// A server that keeps one Lease.
class LeaseServer final : public Transport {
 public:
  struct State {
    std::optional<Json> lease = {};
    int64_t version = 0;
    bool is_down = false;
    std::function<void()> cut = {};  ///< Called by the next write, whose answer is lost.
  };
  explicit LeaseServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

  [[nodiscard]] Exchanged exchange(const Request& request, const ExchangeLimits& /*limits*/,
                                   const std::stop_token& /*stop*/,
                                   const Receive& receive) override {
    if (state_->is_down) return {{Code::kUnavailable, "down"}, true};
    const bool is_get = request.method == "GET";
    int status = is_get && !state_->lease ? 404 : 200;
    if (!is_get) {
      Json sent = Json::parse(request.body);
      const std::string have =
          state_->lease ? text_at(*state_->lease, {"metadata", "resourceVersion"}) : "";
      status = text_at(sent, {"metadata", "resourceVersion"}) == have ? 200 : 409;
      if (status == 200) {
        sent["metadata"]["resourceVersion"] = std::to_string(++state_->version);
        state_->lease = std::move(sent);
      }
      if (const auto cut = std::exchange(state_->cut, {})) {
        cut();
        return {{Code::kCancelled, "stopped"}, true};
      }
    }
    return {receive({status, {}}, status == 200 ? text_of(*state_->lease) : "{}"), true};
  }
  [[nodiscard]] Exchanged upgrade(const Request& request, const ExchangeLimits& limits,
                                  const std::stop_token& stop, const Receive& receive,
                                  std::unique_ptr<io::ByteStream>& /*stream*/) override {
    return exchange(request, limits, stop, receive);
  }

 private:
  const std::shared_ptr<State> state_;  ///< Shared with the test and the other candidate.
};

/// A candidate on a clock that only its own waits move; it stops after so many.
struct Elector {
  Elector(const std::shared_ptr<LeaseServer::State>& server, const std::string& me)
      : client(std::make_unique<LeaseServer>(server), {}, counting()) {
    LeaseOptions options;
    options.key = {"corro", "operator"};
    options.me = me;
    election = std::move(Election::create(client, options)).value();
  }
  Surroundings counting() {
    Surroundings made = time.make();
    made.wait = [this](Duration duration, const std::stop_token& asked) {
      time.now = time.now + duration;
      on_wait();
      if (--waits_left <= 0) stop.request_stop();
      return asked.stop_requested();
    };
    return made;
  }
  Status run(int most_waits) {
    waits_left = most_waits;
    return election->run(
        [&](bool leads, std::string_view reason) {
          told.push_back((leads ? "leads: " : "follows: ") + std::string(reason));
        },
        [&](const Status& status) { steps += status.ok() ? '.' : 'x'; }, stop.get_token());
  }

  VirtualSurroundings time;
  std::stop_source stop;
  int waits_left = 0;
  std::string steps;  ///< Looks at the Lease: x for one that failed.
  std::function<void()> on_wait = [] {};
  std::vector<std::string> told;
  Client client;
  std::unique_ptr<Election> election;
};

TEST(Elections, AcquireRenewAndRelease) {
  const auto server = std::make_shared<LeaseServer::State>();
  Elector first(server, "a");
  first.on_wait = [&] { EXPECT_TRUE(first.election->leads()); };
  EXPECT_EQ(first.run(20).code(), Code::kCancelled);
  EXPECT_FALSE(first.election->leads());
  EXPECT_THAT(first.told, ElementsAre("leads: there is no Lease", "follows: stopped"));
  EXPECT_THAT(first.steps, Not(HasSubstr("x")));
  EXPECT_EQ(text_at(*server->lease, {"spec", "holderIdentity"}), "");
  EXPECT_EQ(server->version, 21);  // Created, renewed 19 times, released.
  Elector second(server, "b");
  EXPECT_EQ(second.run(1).code(), Code::kCancelled);
  EXPECT_THAT(second.told, ElementsAre("leads: the Lease was released", "follows: stopped"));
}

TEST(Elections, ReleaseWhatAStopHasCutOff) {
  for (const int writes_before : {0, 1, 5}) {
    const auto server = std::make_shared<LeaseServer::State>();
    Elector one(server, "a");
    const auto cut_next = [&] { server->cut = [&one] { one.stop.request_stop(); }; };
    int waits = 0;
    one.on_wait = [&] {
      if (++waits == writes_before) cut_next();
    };
    if (writes_before == 0) cut_next();
    EXPECT_EQ(one.run(60).code(), Code::kCancelled);
    EXPECT_EQ(server->version, writes_before + 2);  // The one that was cut off, the release.
    EXPECT_EQ(text_at(*server->lease, {"spec", "holderIdentity"}), "") << writes_before;
  }
}

TEST(Elections, LoseTheLeadWhenTheServerIsSilentAndRegainIt) {
  const auto server = std::make_shared<LeaseServer::State>();
  Elector one(server, "a");
  int waits = 0;
  one.on_wait = [&] {
    ++waits;
    server->is_down = waits >= 3 && waits < 30;
  };
  EXPECT_EQ(one.run(60).code(), Code::kCancelled);
  EXPECT_THAT(one.told,
              ElementsAre("leads: there is no Lease", "follows: no renewal was answered for 10 s",
                          "leads: an answer to its own renewal was lost", "follows: stopped"));
  // Giving up the lead is no answer of the server.
  EXPECT_THAT(one.steps, HasSubstr(".xxx."));
}

TEST(Elections, WaitForAnotherAndTakeOverWhenItIsSilent) {
  const auto server = std::make_shared<LeaseServer::State>();
  LeaseRecord other;
  other.holder = "b";
  other.duration = seconds(15);
  other.version = "0";
  server->lease = write_lease(other, {"corro", "operator"});
  Elector one(server, "a");
  const Time begin = one.time.now;
  EXPECT_EQ(one.run(12).code(), Code::kCancelled);
  ASSERT_EQ(one.told.size(), 2U);
  EXPECT_THAT(one.told[0], HasSubstr("held by \"b\", unchanged for 1"));
  EXPECT_GE(one.time.now - begin, seconds(15));
  const Json* transitions = value_at(*server->lease, {"spec", "leaseTransitions"});
  ASSERT_NE(transitions, nullptr);
  EXPECT_EQ(*transitions, 1);
}

}  // namespace
}  // namespace corro::kube
