#include "obs/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "obs/flight_layout.h"
#include "obs/flight_recorder.h"
#include "obs/metrics_reader.h"

namespace corro::obs {
namespace {

std::unique_ptr<FlightRecorder> make_recorder() {
  return std::move(FlightRecorder::create({.rank = 1, .size = 4, .capacity = 4})).value();
}

uint64_t read(const MetricValues& values, Metric metric) {
  return values.at(static_cast<size_t>(metric));
}

TEST(Metrics, CopiesWriteTheSameNumbers) {
  const Metrics metrics;
  const Metrics copy = metrics;  // NOLINT(performance-unnecessary-copy-initialization)
  copy.add(Metric::kWakeups);
  copy.add(Metric::kBytesSentTcp, 40);
  copy.add(Metric::kBytesSentShm, 2);
  copy.set(Metric::kGroups, 3);
  copy.subtract(Metric::kGroups, 1);
  copy.raise(Metric::kBouncedBytesPeak, 7);
  copy.raise(Metric::kBouncedBytesPeak, 5);
  EXPECT_EQ(metrics.value(Metric::kWakeups), 1U);
  EXPECT_EQ(metrics.value(Metric::kGroups), 2U);
  EXPECT_EQ(metrics.value(Metric::kBouncedBytesPeak), 7U);
  EXPECT_EQ(metrics.total("bytes_sent"), 42U) << "over all transports";
  EXPECT_EQ(metrics.total("no such metric"), 0U);
  EXPECT_EQ(Metrics().value(Metric::kWakeups), 0U);
}

TEST(Metrics, TheRecorderCountsOperationsAndFailures) {
  auto recorder = make_recorder();
  recorder->steps().set_step(17);
  for (int i = 0; i < 10; ++i)
    recorder->end(recorder->begin({}), i % 5 == 0 ? Code::kUnavailable : Code::kOk);
  EXPECT_EQ(recorder->metrics().value(Metric::kOps), 10U) << "more than the ring has room for";
  EXPECT_EQ(recorder->metrics().value(Metric::kFailures), 2U);
  EXPECT_EQ(recorder->metrics().value(Metric::kStep), 17U);
  EXPECT_EQ(recorder->metrics().value(Metric::kRanks), 4U);
}

TEST(Metrics, AFailureCountsAlsoOnceItsRecordIsOverwritten) {
  auto recorder = make_recorder();
  const auto old = recorder->begin({});
  for (int i = 0; i < 4; ++i) recorder->begin({});
  recorder->end(old, Code::kUnavailable);
  EXPECT_EQ(recorder->metrics().value(Metric::kFailures), 1U);
}

TEST(Metrics, AreReadFromOutsideByNumberAndByName) {
  auto recorder = make_recorder();
  for (size_t i = 0; i < kMetricCount; ++i)
    recorder->metrics().set(static_cast<Metric>(i), 1000 + i);
  const auto snapshot = read_flight(recorder->fd());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  ASSERT_EQ(snapshot->metrics.size(), kMetricCount);
  for (size_t i = 0; i < kMetricCount; ++i) EXPECT_EQ(snapshot->metrics[i], 1000 + i);
  EXPECT_EQ(total_of(snapshot->metrics, "groups"), read(snapshot->metrics, Metric::kGroups));
  EXPECT_EQ(total_of(snapshot->metrics, "bytes_sent"),
            read(snapshot->metrics, Metric::kBytesSentShm) +
                read(snapshot->metrics, Metric::kBytesSentTcp));
  EXPECT_EQ(total_of(snapshot->metrics, "no such metric"), std::nullopt);
}

TEST(Metrics, StayReadableAfterTheirProcessWasKilled) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  auto recorder = make_recorder();
  const int kept = fcntl(recorder->fd(), F_DUPFD_CLOEXEC, 0);
  const pid_t child = fork();
  if (child == 0) {
    recorder->metrics().add(Metric::kBytesReceivedTcp, 123);
    (void)!write(report[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(report[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  recorder.reset();
  const auto snapshot = read_flight(kept);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  EXPECT_EQ(read(snapshot->metrics, Metric::kBytesReceivedTcp), 123U);
  close(kept);
  close(report[0]);
  close(report[1]);
}

TEST(Metrics, OutliveTheRecorder) {
  auto recorder = make_recorder();
  const Metrics metrics = recorder->metrics();
  recorder.reset();
  metrics.add(Metric::kWakeups);
  EXPECT_EQ(metrics.value(Metric::kWakeups), 1U);
}

TEST(Metrics, OfAConcurrentWriterOnlyGrow) {
  auto recorder = make_recorder();
  constexpr uint64_t kEnough = 100'000;
  std::jthread writer([&] {
    for (uint64_t i = 0; i < kEnough; ++i) {
      recorder->metrics().add(Metric::kBytesSentShm, 3);
      recorder->end(recorder->begin({}), Code::kOk);
    }
  });
  uint64_t bytes = 0, ops = 0;
  while (ops < kEnough || bytes < 3 * kEnough) {
    const MetricValues values = read_flight(recorder->fd()).value().metrics;
    ASSERT_GE(read(values, Metric::kBytesSentShm), bytes);
    ASSERT_GE(read(values, Metric::kOps), ops);
    bytes = read(values, Metric::kBytesSentShm);
    ops = read(values, Metric::kOps);
    ASSERT_EQ(bytes % 3, 0U) << "no number is read while it is half written";
  }
  EXPECT_EQ(bytes, 3 * kEnough);
}

TEST(ReadMetrics, OfAnotherReleaseAreThoseThatBothKnow) {
  auto cells = std::make_unique<MetricCells>();
  for (size_t i = 0; i < cells->size(); ++i) (*cells)[i] = i;
  EXPECT_EQ(read_metrics(*cells, 3), (MetricValues{0, 1, 2})) << "an older one";
  EXPECT_EQ(read_metrics(*cells, kMetricCount + 5).size(), kMetricCount) << "a newer one";
  EXPECT_EQ(read_metrics(*cells, ~0U).size(), kMetricCount) << "a liar";
  EXPECT_EQ(total_of({5, 6}, "ops"), 5U);
  EXPECT_EQ(total_of({5, 6}, "arena_bytes"), std::nullopt);
}

/// Every metric is a row of the page for users, and every row is a metric.
TEST(AllMetrics, AreThoseOfTheDocument) {
  std::ifstream file(CORRO_METRICS_DOCUMENT);
  ASSERT_TRUE(file) << CORRO_METRICS_DOCUMENT;
  std::set<std::string> documented, wanted;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) documented.insert(line);
  }
  for (const MetricInfo& metric : all_metrics()) {
    EXPECT_EQ(metric.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos);
    EXPECT_TRUE(metric.help.ends_with('.')) << metric.name;
    const std::string transports = metric.transport.empty() ? "" : "`shm`, `tcp`";
    wanted.insert(fmt::format("| `{}` | {} | {} | {} | {} |", metric.name,
                              metric.kind == MetricKind::kCounter ? "counter" : "gauge",
                              metric.unit, transports, metric.help));
  }
  EXPECT_EQ(documented, wanted);
}

}  // namespace
}  // namespace corro::obs
