#include "obs/metrics.h"

namespace corro::obs {
namespace {

constexpr auto kCounter = MetricKind::kCounter;
constexpr auto kGauge = MetricKind::kGauge;

constexpr std::array<MetricInfo, kMetricCount> kMetrics = {{
    {"ops", kCounter, "operations", "", "Operations and firings of plans begun."},
    {"failures", kCounter, "operations", "", "Operations that were refused or failed."},
    {"polls", kCounter, "calls", "", "Times that the engine looked for something to move."},
    {"in_flight", kGauge, "operations", "", "Operations submitted and not over."},
    {"messages_sent", kCounter, "messages", "shm", "Messages that have left whole."},
    {"messages_sent", kCounter, "messages", "tcp", "Messages that have left whole."},
    {"messages_received", kCounter, "messages", "shm", "Messages that have arrived whole."},
    {"messages_received", kCounter, "messages", "tcp", "Messages that have arrived whole."},
    {"bytes_sent", kCounter, "bytes", "shm", "Payload of messages sent."},
    {"bytes_sent", kCounter, "bytes", "tcp", "Payload of messages sent."},
    {"bytes_received", kCounter, "bytes", "shm", "Payload of messages received."},
    {"bytes_received", kCounter, "bytes", "tcp", "Payload of messages received."},
    {"bounced", kCounter, "messages", "", "Messages that came before their operation began here."},
    {"pauses", kCounter, "times", "", "Times that a peer was told to hold back early messages."},
    {"bounced_bytes", kGauge, "bytes", "", "Payload of early messages held now."},
    {"bounced_bytes_peak", kGauge, "bytes", "", "The most payload of early messages ever held."},
    {"named_messages", kCounter, "messages", "",
     "Announcements and decisions of named operations sent."},
    {"wakeups", kCounter, "times", "", "Times that the progress thread woke up."},
    {"suspects", kCounter, "operations", "", "Operations that waited 5 s for one rank."},
    {"ranks_lost", kCounter, "ranks", "", "Ranks known to be lost."},
    {"handshakes_refused", kCounter, "connections", "",
     "Strangers turned away at this rank's ports."},
    {"step", kGauge, "steps", "", "The training step, as told by corro.set_step()."},
    {"ranks", kGauge, "ranks", "", "Ranks of the job."},
    {"groups", kGauge, "groups", "", "Groups that this rank is in, that of all ranks included."},
    {"plans", kGauge, "plans", "", "Plans loaded."},
    {"arena_bytes", kGauge, "bytes", "", "Shared memory taken by tensors and by the engine."},
    {"group_polls", kCounter, "calls", "",
     "Times that a group was looked at for something to move; idle groups are not."},
    {"steps", kCounter, "steps", "", "Training steps that have ended."},
    {"step_ns", kCounter, "nanoseconds", "", "Time that these steps took."},
    {"step_wait_ns", kCounter, "nanoseconds", "",
     "Time of these steps in which threads waited for collectives, all together."},
    {"wait_ns", kCounter, "nanoseconds", "",
     "Time in which threads waited for collectives, all together."},
    {"recent_step_ns", kGauge, "nanoseconds", "", "Time of a step, smoothed over ten."},
    {"recent_wait_ns", kGauge, "nanoseconds", "", "Of that what threads waited, smoothed alike."},
    {"served", kCounter, "operations", "", "Allreduces that servers took part in."},
    {"served_in_vain", kCounter, "operations", "",
     "Allreduces in which a server was lost: ranks did them again."},
}};

}  // namespace

std::span<const MetricInfo, kMetricCount> all_metrics() { return kMetrics; }

uint64_t Metrics::total(std::string_view name) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kMetricCount; ++i) {
    if (kMetrics[i].name == name) sum += value(static_cast<Metric>(i));
  }
  return sum;
}

}  // namespace corro::obs
