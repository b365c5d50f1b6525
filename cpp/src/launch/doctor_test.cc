#include "launch/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace corro::launch {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

Patient patient(int rank, char state, obs::Phase phase, int waiting_for) {
  Patient made{.pid = 100 + rank, .job = "j", .state = state, .flight = {}};
  made.flight.rank = rank;
  made.flight.pid = 100 + rank;
  made.flight.step = 5;
  obs::OpSnapshot op;
  op.sequence = 1;
  op.op = {.op_id = 9, .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 10};
  op.phase = phase;
  op.waiting_for = waiting_for;
  op.queued_ns = op.started_ns = 1'000'000'000;
  op.done_ns = phase == obs::Phase::kDone ? 1'000'000'000 : 0;
  made.flight.recent.push_back(op);
  return made;
}

TEST(Diagnose, NamesTheRankThatTheOthersWaitForAndWhatItDoes) {
  const std::vector<Patient> patients = {patient(0, 'S', obs::Phase::kExchange, 2),
                                         patient(1, 'S', obs::Phase::kExchange, 2),
                                         patient(2, 'T', obs::Phase::kDone, -1)};
  EXPECT_THAT(
      diagnose(patients, {seconds(4)}),
      ElementsAre("ranks 0-1 wait for rank 2 (pid 102): stopped; kill -CONT 102 lets it go on"));
}

TEST(Diagnose, ARankOutsideAnyOperationIsDescribedByItsLastOne) {
  const std::vector<Patient> patients = {patient(0, 'S', obs::Phase::kExchange, 1),
                                         patient(1, 'R', obs::Phase::kDone, -1)};
  EXPECT_THAT(diagnose(patients, {seconds(4)}),
              ElementsAre(HasSubstr("rank 0 waits for rank 1 (pid 101): last operation was")));
}

TEST(Diagnose, SaysThatARankIsNotHere) {
  EXPECT_THAT(diagnose({patient(0, 'S', obs::Phase::kExchange, 1)}, {seconds(4)}),
              ElementsAre(HasSubstr("not on this host, or it has ended")));
  EXPECT_TRUE(diagnose({patient(0, 'S', obs::Phase::kDone, -1)}, {seconds(4)}).empty());
}

TEST(Table, HasALineForEachProcess) {
  const std::string table = format_table({patient(0, 'S', obs::Phase::kReduce, 3)}, {seconds(4)});
  EXPECT_THAT(table, HasSubstr("allreduce #10 (f32 x 10)"));
  EXPECT_THAT(table, HasSubstr("rank 3"));
  EXPECT_THAT(table, HasSubstr("3.0 s"));
  const auto json = nlohmann::json::parse(
      format_patients_json({patient(0, 'S', obs::Phase::kReduce, 3)}, {seconds(4)}));
  EXPECT_EQ(json[0]["waiting_for"], 3);
  EXPECT_EQ(json[0]["phase"], "reduce");
  EXPECT_DOUBLE_EQ(json[0]["since_seconds"], 3.0);
}

TEST(PatientsMetrics, AreInTheTableInJsonAndForPrometheus) {
  Patient busy = patient(0, 'S', obs::Phase::kReduce, 3);
  const obs::Metrics metrics;
  metrics.set(obs::Metric::kOps, 1204);
  metrics.set(obs::Metric::kBytesSentTcp, 3U << 20U);
  metrics.set(obs::Metric::kBytesReceivedShm, 700);
  for (size_t i = 0; i < obs::kMetricCount; ++i)
    busy.flight.metrics.push_back(metrics.value(static_cast<obs::Metric>(i)));
  const std::string table = format_table({busy}, {seconds(4)});
  for (const char* shown : {"1204", "3 MiB", "700 B"}) EXPECT_THAT(table, HasSubstr(shown));
  const auto json = nlohmann::json::parse(format_patients_json({busy}, {seconds(4)}))[0]["metrics"];
  EXPECT_EQ(json["ops"], 1204);
  EXPECT_EQ(json["bytes_sent"]["tcp"], 3U << 20U);
  EXPECT_EQ(json["bytes_received"]["shm"], 700);
  EXPECT_THAT(format_patients_metrics({busy}, "node7"),
              HasSubstr(R"(corro_ops_total{job="j",host="node7",rank="0",pid="100"} 1204)"));
}

TEST(PatientsMetrics, OfAnOlderReleaseAreThoseItHas) {
  const Patient old = patient(0, 'S', obs::Phase::kReduce, 3);
  EXPECT_THAT(format_table({old}, {seconds(4)}), HasSubstr(" - "));
  const auto json = nlohmann::json::parse(format_patients_json({old}, {seconds(4)}))[0];
  EXPECT_TRUE(json["metrics"].empty());
}

TEST(FindPatients, ReadsAProcessFromOutsideAndLeavesItsForkedChildrenOut) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    auto recorder = std::move(obs::FlightRecorder::create({.rank = 41, .size = 42})).value();
    recorder->set_phase(recorder->begin({.op_id = 1}), obs::Phase::kExchange, 7);
    const pid_t loader = fork();  // holds the recorder too
    if (loader != 0) (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  const auto patients = find_patients();
  const auto ours = std::count_if(patients.begin(), patients.end(),
                                  [](const Patient& p) { return p.flight.rank == 41; });
  EXPECT_EQ(ours, 1);
  const auto of_launcher = find_patients_of(getpid());
  ASSERT_TRUE(of_launcher.ok()) << of_launcher.status().to_string();
  ASSERT_EQ(of_launcher->size(), 1U);
  EXPECT_EQ(of_launcher->front().pid, child);
  EXPECT_FALSE(find_patients_of(1 << 30).ok()) << "no such process";
  const auto found = read_patient(child);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->state, 'T');
  EXPECT_EQ(found->flight.recent.at(0).waiting_for, 7);
  kill(-child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(FindPatients, AProcessThatOnlyHoldsTheRecorderOfAnotherIsNone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  auto recorder = std::move(obs::FlightRecorder::create({.rank = 43, .size = 44})).value();
  const pid_t holder = fork();
  if (holder == 0) {
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto pids = [] {
    std::vector<pid_t> found;
    for (const Patient& p : find_patients()) {
      if (p.flight.rank == 43) found.push_back(p.pid);
    }
    return found;
  };
  EXPECT_THAT(pids(), ElementsAre(getpid()));
  EXPECT_TRUE(read_patient(holder).ok()) << "asked for by its pid, it is read";
  EXPECT_EQ(find_patients_of(holder).value().size(), 1U) << "for want of ranks below it";
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace corro::launch
