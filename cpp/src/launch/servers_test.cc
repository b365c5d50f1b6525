#include "launch/servers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/job_course.h"
#include "launch/rank_start.h"
#include "launch/server_lines.h"
#include "wire/server_number.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two hosts with a rank each, and three table servers.
JobFacts job() {
  JobFacts facts;
  facts.ranks = 2;
  facts.servers = 3;
  facts.hosts.resize(2);
  facts.hosts[0].name = "node1";
  facts.hosts[1].name = "node2";
  facts.hosts[1].first_rank = 1;
  return facts;
}

TEST(Servers, GoAroundTheHostsAndAreNoRanks) {
  const Servers servers(job(), wire::digest_of("job"));
  ASSERT_EQ(servers.size(), 3U);
  EXPECT_EQ(servers.host_of(0), 0U);
  EXPECT_EQ(servers.host_of(1), 1U);
  EXPECT_EQ(servers.host_of(2), 0U);
  const agent::Subject& last = servers.subject(2);
  EXPECT_TRUE(wire::is_server(last.rank));
  EXPECT_NE(last.member, servers.subject(0).member);
  EXPECT_EQ(servers.find(0, last), 2U);
  EXPECT_FALSE(servers.find(1, last)) << "it is on another host";
  EXPECT_FALSE(servers.find(0, {.job = last.job, .rank = last.rank, .incarnation = 1}));
}

TEST(Servers, PreferHostsWithoutRanks) {
  JobFacts facts = job();
  facts.hosts.push_back({.name = "node3", .first_rank = 2, .ranks = 0, .address = ""});
  const Servers servers(facts, wire::digest_of("job"));
  for (size_t server = 0; server < 3; ++server) EXPECT_EQ(servers.host_of(server), 2U);
}

TEST(Servers, StayOnHostsWithoutRanksWhileThereAreSome) {
  JobFacts facts = job();
  facts.servers = 1;
  facts.hosts.push_back({.name = "node3", .first_rank = 2, .ranks = 0, .address = ""});
  EXPECT_EQ(facts.nodes(), 2U);
  Servers servers(facts, wire::digest_of("job"));
  servers.begin();
  ASSERT_TRUE(servers.start_more(1, Time{}).ok());
  const auto more = servers.start_next(Time{});
  ASSERT_TRUE(more);
  EXPECT_EQ(servers.host_of(*more), 2U);
  EXPECT_EQ(servers.lose_host(2), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(servers.lose_host(2), std::vector<size_t>{});
  ASSERT_TRUE(servers.replace(0, Time{}));
  const auto next = servers.start_next(servers.wake());
  ASSERT_TRUE(next);
  EXPECT_NE(servers.host_of(*next), 2U) << "it is gone";
}

TEST(Servers, AreAskedOnceAndKilledOnce) {
  Servers servers(job(), {});
  EXPECT_TRUE(servers.over()) << "none was started";
  servers.begin();
  const Time then{seconds(10)};
  EXPECT_EQ(servers.end_all(seconds(5), then), SIGTERM);
  EXPECT_EQ(servers.end_all(seconds(5), then + seconds(1)), std::nullopt);
  EXPECT_EQ(servers.wake(), then + seconds(5));
  EXPECT_EQ(servers.end_all(seconds(5), then + seconds(5)), SIGKILL);
  EXPECT_TRUE(servers.over()) << "what cannot be killed is not waited for";
  EXPECT_EQ(servers.end_all(seconds(5), then + seconds(9)), std::nullopt);
}

TEST(Servers, AreReplacedOnTheNextHostAsOftenAsThereAreSome) {
  Servers servers(job(), {});
  servers.begin();
  servers.end(0);
  const Time then{seconds(10)};
  EXPECT_TRUE(servers.replace(0, then));
  EXPECT_EQ(servers.start_next(then), std::nullopt);
  EXPECT_EQ(servers.wake(), then + seconds(1));
  EXPECT_EQ(servers.start_next(then + seconds(1)), 3U);
  EXPECT_EQ(servers.host_of(3), 1U);
  EXPECT_EQ(servers.replaced_by(3), 0U);
  EXPECT_TRUE(servers.runs(3));
  EXPECT_EQ(servers.subject(3).rank, wire::kFirstServer + 3);
  EXPECT_EQ(servers.wake(), Time::never());
  for (size_t lost = 3; lost < 5; ++lost) {
    servers.end(lost);
    EXPECT_TRUE(servers.replace(lost, then));
    EXPECT_EQ(servers.start_next(then + seconds(1)), lost + 1);
  }
  EXPECT_FALSE(servers.replace(5, then)) << "something is wrong with this job";
  EXPECT_EQ(servers.start_next(then + seconds(9)), std::nullopt);
}

TEST(Servers, NoneIsStartedOnAHostThatIsLostOrOnceTheJobEnds) {
  Servers servers(job(), {});
  servers.begin();
  servers.lose_host(1);
  EXPECT_TRUE(servers.replace(0, Time{}));
  EXPECT_TRUE(servers.replace(2, Time{}));
  EXPECT_EQ(servers.start_next(Time{seconds(1)}), 3U);
  EXPECT_EQ(servers.host_of(3), 0U);
  EXPECT_EQ(servers.end_all(seconds(5), Time{seconds(1)}), SIGTERM);
  EXPECT_EQ(servers.start_next(Time{seconds(1)}), std::nullopt);
}

TEST(Servers, MoreAreStartedWhereTheUserAsksForThem) {
  Servers servers(job(), {});
  servers.begin();
  ASSERT_TRUE(servers.start_more(2, Time{seconds(3)}).ok());
  EXPECT_EQ(servers.start_next(Time{seconds(3)}), 3U);
  EXPECT_EQ(servers.start_next(Time{seconds(3)}), 4U);
  EXPECT_EQ(servers.start_next(Time{seconds(9)}), std::nullopt);
  EXPECT_EQ(servers.replaced_by(3), std::nullopt);
  EXPECT_NE(servers.host_of(3), servers.host_of(4));
  EXPECT_THAT(servers.start_more(1 << 20U, Time{}).message(), HasSubstr("1024 are the most"));
  JobFacts none = job();
  none.servers = 0;
  EXPECT_THAT(Servers(none, {}).start_more(1, Time{}).message(), HasSubstr("--servers 1"));
  none.ranks_serve = true;
  EXPECT_EQ(Servers(none, {}).start_more(1, Time{}).message(),
            "the ranks are the job's table servers: corro run --servers 1 starts others");
}

TEST(Servers, AllButTheLastOneMayLeave) {
  Servers servers(job(), {});
  servers.begin();
  EXPECT_TRUE(servers.let_go(1).ok());
  EXPECT_EQ(servers.let_go(1).message(), "server 1 leaves already");
  EXPECT_EQ(servers.let_go(7).message(), "server 7 does not run");
  EXPECT_TRUE(servers.let_go(0).ok());
  EXPECT_THAT(servers.let_go(2).message(), HasSubstr("is the last one"));
}

TEST(Servers, HaveTheTablesThatWereSeenLastUntilTheyEnd) {
  Servers servers(job(), {});
  const auto names_of = [&servers](size_t server) {
    std::vector<std::string> names;
    for (const obs::TableCounts& table : servers.tables(server)) names.push_back(table.name);
    return names;
  };
  servers.see(0, {{.name = "early"}});
  EXPECT_THAT(names_of(0), IsEmpty()) << "it does not run";
  servers.begin();
  for (const size_t server : {0U, 1U, 2U}) servers.see(server, {{.name = "words"}});
  servers.see(1, {{.name = "users"}, {.name = "words"}});
  EXPECT_THAT(names_of(0), ElementsAre("words"));
  EXPECT_THAT(names_of(1), ElementsAre("users", "words"));
  servers.end(1);
  servers.see(1, {{.name = "late"}});
  EXPECT_THAT(names_of(1), IsEmpty());
  servers.lose_host(servers.host_of(2));
  EXPECT_THAT(names_of(2), IsEmpty());
}

TEST(Servers, TheirGraceMayBecomeShorter) {
  Servers servers(job(), {});
  servers.begin();
  EXPECT_EQ(servers.end_all(seconds(5), Time{}), SIGTERM);
  EXPECT_EQ(servers.end_all(milliseconds(0), Time{}), SIGKILL);
}

TEST(ServerLines, HaveTheServerInFront) {
  ServerLines lines;
  EXPECT_EQ(lines.feed(1, io::Output::kErr, "one\ntw"), "[server 1] one\n");
  EXPECT_EQ(lines.feed(0, io::Output::kErr, "other\n"), "[server 0] other\n");
  EXPECT_EQ(lines.finish(1, io::Output::kErr), "[server 1] tw\n");
  EXPECT_EQ(lines.finish(1, io::Output::kOut), "");
}

/// A job whose ranks and servers have all been started.
class CourseWithServers : public testing::Test {
 protected:
  CourseWithServers() : CourseWithServers(job()) {}
  explicit CourseWithServers(const JobFacts& facts)
      : one_(facts, new_members(wire::digest_of("job"), 2), {.several_hosts = true}, now_) {
    one_.begin(Time{});
    for (const JobOrder& order : one_.take_orders()) {
      if (const auto* start = std::get_if<StartServer>(&order)) servers_.push_back(*start);
      starts_ += std::holds_alternative<StartServer>(order) ? "S"
                 : std::holds_alternative<StartRank>(order) ? "R"
                                                            : "-";
    }
  }

  static agent::Ended ended(int status) {
    agent::Ended said;
    said.end.ended = true;
    said.end.status = status;
    return said;
  }
  void hear_server(size_t server, agent::MessageBody body) {
    one_.hear(servers_[server].host, {servers_[server].about, std::move(body)}, now_);
  }
  void end_rank(size_t place, int status = 0) {
    one_.hear(place, {one_.subject(place), ended(status)}, now_);
  }
  /// Who is told to get which signal, and events and lines, in words.
  std::vector<std::string> told() {
    one_.tick(now_);
    std::vector<std::string> words;
    for (const JobOrder& order : one_.take_orders()) {
      if (const auto* start = std::get_if<StartServer>(&order)) {
        servers_.push_back(*start);
        words.push_back(fmt::format("start {} on {}", start->server, start->host));
      } else if (const auto* tell = std::get_if<TellHost>(&order)) {
        const auto* signal = std::get_if<agent::Signal>(&tell->message.body);
        const int server = tell->message.about.rank - wire::kFirstServer;
        if (signal != nullptr)
          words.push_back(fmt::format("{} to {} on {}", signal->number, server, tell->host));
      } else if (const auto* note = std::get_if<Note>(&order)) {
        words.push_back(note->line);
      } else if (const auto* event = std::get_if<Announce>(&order)) {
        const bool lost = event->event.kind == EventKind::kServerLost;
        const bool started = event->event.kind == EventKind::kServerStarted;
        const bool left = event->event.kind == EventKind::kServerLeft;
        if (lost || started || left) words.push_back(event->event.host + ": " + event->event.cause);
      }
    }
    return words;
  }

  Time now_{};
  JobCourse one_;
  std::vector<StartServer> servers_;
  std::string starts_;
};

TEST_F(CourseWithServers, AllAreStartedBeforeTheRanksAndAreNone) {
  EXPECT_EQ(starts_, "SSSRR-");
  EXPECT_EQ(one_.running(), 2);
  EXPECT_EQ(one_.result(now_).ends.size(), 2U);
}

TEST_F(CourseWithServers, OneThatEndsWhileRanksRunIsAnEventAndNoFailure) {
  hear_server(1, ended(SIGKILL));
  EXPECT_THAT(told(), ElementsAre("corro: server 1 was lost: killed by SIGKILL\n",
                                  "node2: server 1 was lost: killed by SIGKILL"));
  EXPECT_EQ(one_.running(), 2);
  EXPECT_TRUE(one_.goes_on());
  hear_server(1, ended(SIGKILL));
  EXPECT_THAT(told(), IsEmpty()) << "it is said again at the end";
  for (const size_t place : {0U, 1U}) end_rank(place);
  EXPECT_THAT(told(), ElementsAre("15 to 0 on 0", "15 to 2 on 0"));
  for (const size_t server : {0U, 2U}) hear_server(server, ended(0));
  EXPECT_THAT(told(), IsEmpty()) << "they were asked to end";
  EXPECT_TRUE(one_.over());
  for (const diagnosis::RankEnd& end : one_.result(now_).ends) EXPECT_EQ(end.status, 0);
}

TEST_F(CourseWithServers, WhatIsSeenOfOneIsItsTablesAndNothingElse) {
  agent::Seen seen;
  seen.end.tables = {{.name = "words", .rows = 7}};
  hear_server(1, seen);
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_EQ(one_.servers().tables(1), seen.end.tables);
  EXPECT_THAT(one_.servers().tables(0), IsEmpty());
  hear_server(1, ended(SIGKILL));
  EXPECT_THAT(one_.servers().tables(1), IsEmpty());
}

TEST_F(CourseWithServers, OneThatIsToLeaveIsToldAndNotReplaced) {
  EXPECT_EQ(one_.change_servers({.number = 1, .leaves = true}, now_),
            "server 1 leaves once its rows are copied to others");
  EXPECT_THAT(told(), ElementsAre("15 to 1 on 1"));
  EXPECT_THAT(one_.change_servers({.number = 1, .leaves = true}, now_), HasSubstr("no: server 1"));
  hear_server(1, ended(0));
  EXPECT_THAT(told(), ElementsAre("corro: server 1 has left\n", "node2: server 1 has left"));
  now_ = now_ + seconds(5);
  EXPECT_THAT(told(), IsEmpty());
}

TEST_F(CourseWithServers, OneThatIsAskedForIsStarted) {
  EXPECT_EQ(one_.change_servers({.number = 1}, now_), "1 server is started: ranks copy rows to it");
  EXPECT_THAT(told(), ElementsAre("start 3 on 1", "corro: server 3 is started\n",
                                  "node2: server 3 is started"));
  for (const size_t place : {0U, 1U}) end_rank(place);
  EXPECT_EQ(one_.change_servers({.number = 1}, now_), "no: no rank runs");
}

TEST_F(CourseWithServers, OneThatIsLostIsReplaced) {
  hear_server(1, ended(SIGKILL));
  EXPECT_THAT(told(), testing::SizeIs(2));
  now_ = one_.wake();
  EXPECT_THAT(told(),
              ElementsAre("start 3 on 0", "corro: server 3 is started in the place of server 1\n",
                          "node1: server 3 is started in the place of server 1"));
  EXPECT_THAT(told(), IsEmpty());
  hear_server(3, agent::Refused{.code = Code::kNotFound, .why = "/x: no such file"});
  EXPECT_THAT(told(), ElementsAre("corro: server 3 was lost: /x: no such file\n",
                                  "node1: server 3 was lost: /x: no such file"));
  EXPECT_EQ(one_.refused(), "") << "the job goes on";
  for (const size_t place : {0U, 1U}) end_rank(place);
  now_ = one_.wake();
  EXPECT_THAT(told(), ElementsAre("15 to 0 on 0", "15 to 2 on 0")) << "none is started any more";
}

TEST_F(CourseWithServers, AreEndedOnceTheLastRankHasEnded) {
  end_rank(0);
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_FALSE(one_.over());
  end_rank(1);
  EXPECT_THAT(told(), ElementsAre("15 to 0 on 0", "15 to 1 on 1", "15 to 2 on 0"));
  hear_server(0, ended(0));
  hear_server(2, ended(0));
  EXPECT_FALSE(one_.over()) << "one of them still runs";
  now_ = one_.wake();
  EXPECT_THAT(told(), ElementsAre("9 to 1 on 1"));
  EXPECT_TRUE(one_.over());
}

TEST_F(CourseWithServers, HaveLessTimeWhereTheJobWasStopped) {
  end_rank(0, SIGKILL);
  now_ = one_.wake();
  EXPECT_THAT(told(), IsEmpty()) << "ranks are told at first";
  end_rank(1, SIGTERM);
  EXPECT_THAT(told(), testing::SizeIs(3));
  EXPECT_EQ(one_.wake(), now_ + milliseconds(500));
}

TEST_F(CourseWithServers, AreNotWaitedForByAUserWhoWantsOut) {
  for (const size_t place : {0U, 1U}) end_rank(place);
  EXPECT_THAT(told(), testing::SizeIs(3));
  one_.on_signal(SIGINT, now_);
  EXPECT_THAT(told(), ElementsAre("9 to 0 on 0", "9 to 1 on 1", "9 to 2 on 0"));
}

TEST_F(CourseWithServers, OneThatIsNotStartedRefusesTheJob) {
  hear_server(1, agent::Refused{.code = Code::kNotFound, .why = "/x: no such file"});
  EXPECT_EQ(one_.refused(), "host node2: server 1: /x: no such file");
}

TEST_F(CourseWithServers, AreLostWithTheirHost) {
  one_.lose_host(1, "no answer", now_);
  end_rank(0, SIGTERM);
  EXPECT_THAT(told(), ElementsAre("15 to 0 on 0", "15 to 2 on 0"));
}

/// A third host has no rank, and the job's servers.
class CourseWithHostsOfServers : public CourseWithServers {
 protected:
  CourseWithHostsOfServers() : CourseWithServers(with_third_host()) {}
  static JobFacts with_third_host() {
    JobFacts facts = job();
    facts.servers = 2;
    facts.hosts.push_back({.name = "node3", .first_rank = 2, .ranks = 0, .address = ""});
    return facts;
  }
};

TEST_F(CourseWithHostsOfServers, ServersOfALostHostAreToldAndReplaced) {
  one_.lose_host(2, "no answer", now_);
  const std::string lost = "was lost: host node3 was lost: no answer";
  EXPECT_THAT(told(), ElementsAre("corro: server 0 " + lost + "\n", "node3: server 0 " + lost,
                                  "corro: server 1 " + lost + "\n", "node3: server 1 " + lost));
  EXPECT_TRUE(one_.goes_on());
  EXPECT_EQ(one_.running(), 2);
  now_ = one_.wake();
  const auto started = told();
  ASSERT_THAT(started, testing::SizeIs(6));
  EXPECT_EQ(started[0], "start 2 on 0");
  EXPECT_EQ(started[3], "start 3 on 0");
  for (const size_t place : {0U, 1U}) end_rank(place);
  EXPECT_THAT(told(), ElementsAre("15 to 2 on 0", "15 to 3 on 0"));
}

TEST_F(CourseWithServers, OneThatNeverSaidWhereItListensIsToldToAllHosts) {
  hear_server(1, agent::Left{});
  for (const JobOrder& order : one_.take_orders()) {
    const auto* all = std::get_if<TellAll>(&order);
    if (all == nullptr) continue;
    EXPECT_EQ(all->message.about, servers_[1].about);
    EXPECT_EQ(all->from, 1U);
    return;
  }
  FAIL() << "nobody was told";
}

TEST(ServerStart, SaysWhichServerOfWhichJobItIs) {
  LaunchPlan plan;
  plan.job = job();
  plan.job.job_id = "7f";
  plan.job.agent = "corro-7f";
  plan.job.hosts[1].own = false;
  plan.job.hosts[1].address = "10.0.0.2";
  plan.server = "/opt/corro/libexec/corro/corro-server";
  plan.directory = "/work";
  plan.base = {{"CORRO_RANK", "3"}, {"CORRO_MEMBER_UUID", "00"}, {"A", "1"}};
  const agent::Start start = server_start_of(plan, 1, 1, {});
  EXPECT_EQ(start.program, plan.server);
  EXPECT_THAT(start.arguments, ElementsAre(plan.server, "server"));
  EXPECT_EQ(start.size, 2);
  EXPECT_EQ(start.servers, wire::kMostServers) << "others may come";
  EXPECT_EQ(start.directory, "/work");
  EXPECT_TRUE(start.adds_environment);
  EXPECT_THAT(start.environment,
              ElementsAre(std::pair("A", "1"), std::pair("CORRO_AGENT", "corro-7f-1"),
                          std::pair("CORRO_JOB_ID", "7f"), std::pair("CORRO_LISTEN", "10.0.0.2"),
                          std::pair("CORRO_NODES", "2"), std::pair("CORRO_RUN", "1"),
                          std::pair("CORRO_SERVER", "1"), std::pair("CORRO_SERVERS", "3"),
                          std::pair("CORRO_SIZE", "2")));
  const agent::Start later = server_start_of(plan, 4, 0, {});
  EXPECT_EQ(later.environment.at("CORRO_SERVER"), "4");
  EXPECT_EQ(later.environment.at("CORRO_SERVERS"), "3") << "so many were there before";
}

}  // namespace
}  // namespace corro::launch
