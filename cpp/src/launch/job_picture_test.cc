#include "launch/job_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

using dashboard::JobPicture;
using dashboard::JobState;
using dashboard::RankState;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr UnixTime kStarted{seconds(1000)};

/// Two hosts with a rank each.
LaunchPlan two_hosts() {
  LaunchPlan plan;
  plan.options.command = {"train.py", "--lr", "0.1"};
  plan.job.job_id = "job";
  plan.job.ranks = 2;
  plan.job.hosts.resize(2);
  plan.job.hosts[0].name = "node1";
  plan.job.hosts[1].name = "node2";
  plan.job.hosts[1].first_rank = 1;
  return plan;
}

class JobPictureTest : public testing::Test {
 protected:
  JobPictureTest() : JobPictureTest(two_hosts()) {}
  explicit JobPictureTest(LaunchPlan plan) : plan_(std::move(plan)) {}

  static JobCourse course_of(const LaunchPlan& plan, JobCourse::Options options = {}) {
    options.several_hosts = true;
    return {plan.job, new_members(wire::digest_of("job"), 2), std::move(options), Time{}};
  }

  void begin() {
    course_.begin(now_);
    for (const size_t place : {0U, 1U})
      hear(place, agent::Started{.pid = 40 + static_cast<int>(place)});
  }
  void hear(size_t place, agent::MessageBody said) {
    course_.hear(place, {course_.subject(place), std::move(said)}, now_);
  }
  /// The rank runs, in this step; `waits_for`: since the clock began.
  void see(size_t place, uint64_t step, int waits_for = -1) {
    agent::Seen seen;
    seen.end.pid = 40 + static_cast<int>(place);
    seen.clock = now_.since_start;
    obs::ProcessSnapshot flight;
    flight.step = step;
    obs::OpSnapshot op;
    op.op.kind = OpKind::kAllreduce;
    op.phase = waits_for < 0 ? obs::Phase::kDone : obs::Phase::kExchange;
    op.started_ns = 1;
    op.waiting_for = waits_for;
    flight.recent.push_back(op);
    seen.end.flight = flight;
    hear(place, seen);
  }
  void end(size_t place, int status, bool stopped = false) {
    agent::Ended said;
    said.end.ended = true;
    said.end.pid = 40 + static_cast<int>(place);
    said.end.status = status;
    said.end.stopped = stopped;
    hear(place, said);
  }
  [[nodiscard]] JobPicture picture() const { return picture_of(course_, plan_, kStarted); }

  LaunchPlan plan_;
  JobCourse course_ = course_of(plan_);
  Time now_{seconds(10)};
};

TEST_F(JobPictureTest, ShowsWhatARankTellsOfItsTraining) {
  begin();
  agent::Seen seen;
  seen.end.pid = 40;
  seen.end.flight =
      obs::ProcessSnapshot{.step = 4,
                           .times = {.steps = 3, .step_ns = 200'000'000, .wait_ns = 50'000'000},
                           .progress = obs::TrainingProgress{.step = 5004, .of = 9000},
                           .logged = {{.name = "loss", .value = 0.5, .step = 5003}}};
  hear(0, seen);
  see(1, 4);
  const JobPicture job = picture();
  EXPECT_EQ(job.ranks[0].of, 9000U);
  EXPECT_EQ(job.ranks[0].done, 5004U);
  EXPECT_EQ(job.ranks[0].step_seconds, 0.2);
  EXPECT_EQ(job.ranks[0].wait_share, 0.25);
  EXPECT_EQ(job.ranks[0].values, (std::vector<dashboard::LoggedValue>{{"loss", 0.5, 5003}}));
  EXPECT_FALSE(job.ranks[1].of);
  EXPECT_FALSE(job.ranks[1].step_seconds) << "no step has ended";
  EXPECT_TRUE(job.ranks[1].values.empty());
  seen.end.flight->times.wait_ns = 900'000'000;
  hear(0, seen);
  EXPECT_EQ(picture().ranks[0].wait_share, 1.0) << "several threads wait at once";
}

TEST_F(JobPictureTest, HasWhatAProcessSendsByHosts) {
  begin();
  agent::Seen seen;
  seen.end.pid = 40;
  seen.end.flight = obs::ProcessSnapshot{.links = {{.peer = 1, .sent = 300},
                                                   {.peer = 0, .sent = 1},
                                                   {.peer = obs::kOtherPeers, .sent = 20},
                                                   {.peer = 99, .sent = 3}}};
  hear(0, seen);
  const JobPicture job = picture();
  const std::string& member = job.ranks[0].member;
  const std::vector<dashboard::LinkOfMember> expected = {
      {member, job.ranks[0].host, "", 23},
      {member, job.ranks[0].host, job.ranks[0].host, 1},
      {member, job.ranks[0].host, job.ranks[1].host, 300}};
  EXPECT_EQ(job.links, expected);
}

/// Rows of a table as a server tells of them.
agent::Seen tables_seen(int pid, std::vector<obs::TableCounts> tables) {
  agent::Seen seen;
  seen.end.pid = pid;
  seen.end.tables = std::move(tables);
  return seen;
}

/// "table server@host", of each part.
std::vector<std::string> parts_in(const JobPicture& job) {
  std::vector<std::string> parts;
  for (const dashboard::TablePart& one : job.tables)
    parts.push_back(fmt::format("{} {}@{}", one.table, one.server, one.host));
  return parts;
}

/// Each host has a table server, too.
class PictureWithServers : public JobPictureTest {
 protected:
  PictureWithServers() : JobPictureTest(with_servers()) {}
  static LaunchPlan with_servers() {
    LaunchPlan plan = two_hosts();
    plan.job.servers = 2;
    return plan;
  }
  void say(size_t server, agent::MessageBody said) {
    const Servers& all = course_.servers();
    course_.hear(all.host_of(server), {all.subject(server), std::move(said)}, now_);
  }
};

TEST_F(PictureWithServers, ShowsTheTablesOfThoseThatRun) {
  begin();
  const obs::TableCounts words{.name = "words",
                               .rows = 1,
                               .bytes = 2,
                               .shards = 3,
                               .steps = 4,
                               .pulls = 5,
                               .pulled_rows = 6,
                               .pushes = 7,
                               .pushed_rows = 8,
                               .pull_p99_ns = 9};
  say(1, tables_seen(60, {words, {.name = "users"}}));
  say(0, tables_seen(61, {{.name = "words"}}));
  const JobPicture job = picture();
  EXPECT_THAT(parts_in(job),
              testing::ElementsAre("users 1@node2", "words 0@node1", "words 1@node2"));
  EXPECT_EQ(job.tables[2], (dashboard::TablePart{.table = "words",
                                                 .server = 1,
                                                 .host = "node2",
                                                 .rows = 1,
                                                 .bytes = 2,
                                                 .shards = 3,
                                                 .steps = 4,
                                                 .pulls = 5,
                                                 .pulled_rows = 6,
                                                 .pushes = 7,
                                                 .pushed_rows = 8,
                                                 .pull_p99 = Duration(9)}));
  agent::Ended ended;
  ended.end.ended = true;
  ended.end.status = SIGKILL;
  say(1, ended);
  EXPECT_THAT(parts_in(picture()), testing::ElementsAre("words 0@node1"));
}

TEST_F(JobPictureTest, ShowsTheTablesOfRanksThatAreServersAndRun) {
  begin();
  for (const size_t place : {1U, 0U})
    hear(place, tables_seen(40 + static_cast<int>(place), {{.name = "words", .rows = place}}));
  EXPECT_THAT(parts_in(picture()), testing::ElementsAre("words 0@node1", "words 1@node2"));
  EXPECT_EQ(picture().tables[1].rows, 1U);
  end(0, 0);
  EXPECT_THAT(parts_in(picture()), testing::ElementsAre("words 1@node2"));
}

TEST_F(JobPictureTest, BeforeRanksRunThereAreNone) {
  EXPECT_EQ(picture().state, JobState::kOpening);
  EXPECT_TRUE(picture().ranks.empty());
  EXPECT_EQ(picture().command, "train.py --lr 0.1");
  course_.begin(now_);
  ASSERT_EQ(picture().ranks.size(), 2U);
  EXPECT_EQ(picture().ranks[1].state, RankState::kStarting);
  EXPECT_EQ(picture().summary, "0 ranks run; no step yet");
}

TEST_F(JobPictureTest, SaysHowFarTheRanksAre) {
  begin();
  EXPECT_EQ(picture().summary, "2 ranks run; no step yet");
  see(0, 41);
  see(1, 41);
  EXPECT_EQ(picture().summary, "2 ranks run; step 41");
  see(1, 43);
  EXPECT_EQ(picture().summary, "2 ranks run; steps 41 to 43");
  const auto rank = picture().ranks[1];
  EXPECT_EQ(rank.place, 1);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.host, "node2");
  EXPECT_EQ(rank.pid, 41);
  EXPECT_EQ(rank.member.size(), 32U);
  EXPECT_EQ(rank.step, 43U);
  EXPECT_THAT(rank.operation, HasSubstr("allreduce"));
  EXPECT_EQ(rank.phase, "done");
  EXPECT_EQ(rank.awaits, -1);
}

TEST_F(JobPictureTest, SaysWhoWaitsForWhomInTheWordsOfTheScreen) {
  begin();
  see(1, 5);
  see(0, 6, 1);
  course_.look(now_);
  EXPECT_EQ(picture().state, JobState::kWaiting);
  EXPECT_THAT(picture().summary, HasSubstr("rank 0 waits for rank 1 in allreduce"));
  EXPECT_EQ(picture().ranks[0].awaits, 1);
  see(0, 7);
  course_.look(now_);
  EXPECT_EQ(picture().state, JobState::kRunning);
  EXPECT_EQ(picture().ranks[0].awaits, -1);
}

TEST_F(JobPictureTest, SaysWhichRankFailedAndWhichWereStoppedForIt) {
  begin();
  end(1, SIGKILL);
  EXPECT_EQ(picture().state, JobState::kEnding);
  EXPECT_EQ(picture().summary, "the job is being ended; 1 rank still runs");
  end(0, SIGTERM, /*stopped=*/true);
  const JobPicture over = picture();
  EXPECT_EQ(over.lost, 1U);
  EXPECT_EQ(over.ranks[1].state, RankState::kFailed);
  EXPECT_EQ(over.ranks[1].cause, "killed by SIGKILL");
  EXPECT_EQ(over.ranks[0].state, RankState::kStopped);
}

TEST_F(JobPictureTest, WhoHasOnlySeenAnotherGoIsStoppedAndNotLost) {
  begin();
  end(1, SIGKILL);
  agent::Ended said;
  said.end.ended = true;
  said.end.pid = 40;
  said.end.status = 1 << 8;  // Exit status 1.
  said.end.crash.error = "corro.UnavailableError: allreduce: rank 1 was lost";
  hear(0, said);
  EXPECT_EQ(picture().ranks[0].state, RankState::kStopped);
  EXPECT_EQ(picture().ranks[0].cause, "status 1");
  EXPECT_EQ(picture().lost, 1U);
}

TEST_F(JobPictureTest, ALostHostTakesItsRanksWithIt) {
  plan_.options.least = 1;
  begin();
  course_.lose_host(1, "no answer", now_);
  EXPECT_EQ(picture().ranks[1].state, RankState::kLost);
  EXPECT_THAT(picture().ranks[1].cause, HasSubstr("host node2 was lost: no answer"));
  EXPECT_EQ(picture().lost, 1U);
}

TEST_F(JobPictureTest, TheEndIsSaidInOneSentence) {
  const auto end_of = [](int status, const std::string& why) {
    return picture_of_end({}, {.status = status, .why = why});
  };
  EXPECT_EQ(end_of(0, "").state, JobState::kDone);
  EXPECT_EQ(end_of(0, "").summary, "the job is over: every rank has done its work");
  EXPECT_EQ(end_of(1, "ValueError: x (rank 1 on node2)").state, JobState::kFailed);
  EXPECT_EQ(end_of(1, "ValueError: x (rank 1 on node2)").summary,
            "the job has failed: ValueError: x (rank 1 on node2)");
  EXPECT_EQ(end_of(130, "").summary, "the job was stopped; exit status 130");
  EXPECT_EQ(end_of(75, "all ranks have left").summary, "the job is over: all ranks have left");
}

TEST_F(JobPictureTest, AnEventKeepsWhenItHappened) {
  const Event event{.kind = EventKind::kCheckpoint,
                    .epoch = 2,
                    .host = "node1",
                    .rank = 0,
                    .place = 3,
                    .step = 20,
                    .cause = "ckpt/20",
                    .age = seconds(5)};
  const auto happening = happening_of(event, kStarted);
  EXPECT_EQ(happening.at, kStarted - seconds(5));
  EXPECT_EQ(happening.kind, "checkpoint");
  EXPECT_EQ(happening.place, 3);
  EXPECT_EQ(happening.step, 20U);
}

}  // namespace
}  // namespace corro::launch
