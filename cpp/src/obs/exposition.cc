#include "obs/exposition.h"

#include <fmt/format.h>

namespace corro::obs {
namespace {

/// A label's value: foreign text, of which the format takes UTF-8 with three characters escaped.
std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c >= ' ' && c <= '~' ? c : '?';
  }
  return escaped;
}

std::string labels_of(const LabelledMetrics& process) {
  return fmt::format(R"(job="{}",host="{}",rank="{}",pid="{}")", escape(process.job),
                     escape(process.host), process.rank, process.pid);
}

std::string labels_of(const LabelledMetrics& process, const MetricInfo& metric) {
  std::string labels = labels_of(process);
  if (!metric.transport.empty()) labels += fmt::format(R"(,transport="{}")", metric.transport);
  return labels;
}

bool is_time(const MetricInfo& metric) { return metric.unit == "nanoseconds"; }

/// Prometheus counts time in seconds.
std::string name_for_prometheus(const MetricInfo& metric) {
  constexpr std::string_view kNanoseconds = "_ns";
  std::string name = fmt::format("corro_{}", metric.name);
  if (is_time(metric)) name = name.substr(0, name.size() - kNanoseconds.size()) + "_seconds";
  return metric.kind == MetricKind::kCounter ? name + "_total" : name;
}

std::string value_for_prometheus(const MetricInfo& metric, uint64_t value) {
  constexpr double kNanosecond = 1e-9;
  return is_time(metric) ? fmt::format("{}", static_cast<double>(value) * kNanosecond)
                         : fmt::format("{}", value);
}

std::string histograms_of(std::span<const LabelledMetrics> processes, std::string_view name,
                          std::string_view help, DurationHistogram StepHistograms::* which) {
  std::string text;
  for (const LabelledMetrics& process : processes) {
    if (process.steps.taken.count() > 0)
      text += prometheus_lines(process.steps.*which, name, labels_of(process));
  }
  if (text.empty()) return text;
  return fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name) + text;
}

}  // namespace

std::string format_exposition(std::span<const LabelledMetrics> processes) {
  if (processes.empty()) return "";
  std::string text;
  std::string_view described;
  for (size_t i = 0; i < kMetricCount; ++i) {
    const MetricInfo& metric = all_metrics()[i];
    const bool counts = metric.kind == MetricKind::kCounter;
    const std::string name = name_for_prometheus(metric);
    if (metric.name != described) {
      text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, metric.help, name,
                          counts ? "counter" : "gauge");
    }
    described = metric.name;  // Those of one name follow each other.
    for (const LabelledMetrics& process : processes) {
      if (i >= process.values.size()) continue;
      text += fmt::format("{}{{{}}} {}\n", name, labels_of(process, metric),
                          value_for_prometheus(metric, process.values[i]));
    }
  }
  text += histograms_of(processes, "corro_step_duration_seconds", "How long steps took.",
                        &StepHistograms::taken);
  text +=
      histograms_of(processes, "corro_step_wait_duration_seconds",
                    "How long threads waited in a step, all together.", &StepHistograms::waited);
  return text;
}

}  // namespace corro::obs
