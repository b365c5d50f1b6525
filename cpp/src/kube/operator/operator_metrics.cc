#include "kube/operator/operator_metrics.h"

#include <fmt/format.h>

#include "kube/job/job_spec.h"

namespace corro::kube {
namespace {

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void describe_metric(std::string& text, std::string_view name, std::string_view type,
                     std::string_view help) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void write_gauge(std::string& text, std::string_view name, std::string_view help, double value) {
  describe_metric(text, name, "gauge", help);
  text += fmt::format("{} {}\n", name, value);
}

}  // namespace

void SecondsHistogram::observe(double seconds) {
  for (size_t i = 0; i < kBounds.size(); ++i) {
    if (seconds <= kBounds[i]) ++counts_[i];
  }
  ++count_;
  sum_ += seconds;
}

void SecondsHistogram::write(std::string& text, std::string_view name,
                             std::string_view labels) const {
  const std::string_view comma = labels.empty() ? "" : ",";
  for (size_t i = 0; i < kBounds.size(); ++i)
    text +=
        fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, kBounds[i], counts_[i]);
  text += fmt::format("{}_bucket{{{}{}le=\"+Inf\"}} {}\n", name, labels, comma, count_);
  const std::string braced = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  text += fmt::format("{}_sum{} {}\n{}_count{} {}\n", name, braced, sum_, name, braced, count_);
}

void OperatorMetrics::called(std::string_view verb, Duration took, std::string_view result) {
  auto state = state_.lock();
  state->calls[std::string(verb)].observe(seconds_of(took));
  ++state->results[{std::string(verb), std::string(result)}];
}

void OperatorMetrics::restarted(std::string_view cause, int64_t times) {
  state_.lock()->restarts[std::string(cause)] += times;
}

void OperatorMetrics::started(Duration after) { state_.lock()->starts.observe(seconds_of(after)); }

void OperatorMetrics::looked(Duration waited) { state_.lock()->looks.observe(seconds_of(waited)); }

std::string OperatorMetrics::text(const OperatorGauges& gauges) const {
  auto state = state_.lock();
  std::string text;
  write_gauge(text, "corro_operator_leads", "1 while this operator is the leader.",
              gauges.leads ? 1 : 0);
  describe_metric(text, "corro_operator_jobs", "gauge", "Jobs by kind and state.");
  for (const auto& [key, count] : gauges.jobs)
    text += fmt::format("corro_operator_jobs{{kind=\"{}\",state=\"{}\"}} {}\n", key.first,
                        key.second, count);
  describe_metric(text, "corro_operator_restarts_total", "counter",
                  "Restarts of jobs because of a failure, by its cause.");
  for (const Cause cause : kCauses) {
    const std::string name(name_of(cause));
    text += fmt::format("corro_operator_restarts_total{{cause=\"{}\"}} {}\n", name,
                        state->restarts[name]);
  }
  constexpr const char* kStart = "corro_operator_job_start_seconds";
  describe_metric(text, kStart, "histogram", "From a job's creation to all of its pods running.");
  state->starts.write(text, kStart, "");
  write_gauge(text, "corro_operator_queue_due", "Jobs that wait to be looked at.",
              static_cast<double>(gauges.due));
  write_gauge(text, "corro_operator_queue_oldest_seconds", "How long the first of them has waited.",
              seconds_of(gauges.oldest));
  constexpr const char* kLook = "corro_operator_queue_wait_seconds";
  describe_metric(text, kLook, "histogram", "From a job's being due to its being looked at.");
  state->looks.write(text, kLook, "");
  constexpr const char* kCall = "corro_operator_api_seconds";
  describe_metric(text, kCall, "histogram", "Calls of the API with their attempts, by verb.");
  for (const auto& [verb, histogram] : state->calls)
    histogram.write(text, kCall, fmt::format("verb=\"{}\"", verb));
  describe_metric(text, "corro_operator_api_calls_total", "counter",
                  "Calls of the API by verb and result.");
  for (const auto& [key, count] : state->results)
    text += fmt::format("corro_operator_api_calls_total{{verb=\"{}\",result=\"{}\"}} {}\n",
                        key.first, key.second, count);
  return text;
}

}  // namespace corro::kube
