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

std::string labels_of(const LabelledMetrics& process, const MetricInfo& metric) {
  std::string labels = fmt::format(R"(job="{}",host="{}",rank="{}",pid="{}")", escape(process.job),
                                   escape(process.host), process.rank, process.pid);
  if (!metric.transport.empty()) labels += fmt::format(R"(,transport="{}")", metric.transport);
  return labels;
}

}  // namespace

std::string format_exposition(std::span<const LabelledMetrics> processes) {
  if (processes.empty()) return "";
  std::string text;
  std::string_view described;
  for (size_t i = 0; i < kMetricCount; ++i) {
    const MetricInfo& metric = all_metrics()[i];
    const bool counts = metric.kind == MetricKind::kCounter;
    const std::string name = fmt::format("corro_{}{}", metric.name, counts ? "_total" : "");
    if (metric.name != described) {
      text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, metric.help, name,
                          counts ? "counter" : "gauge");
    }
    described = metric.name;  // Those of one name follow each other.
    for (const LabelledMetrics& process : processes) {
      if (i >= process.values.size()) continue;
      text += fmt::format("{}{{{}}} {}\n", name, labels_of(process, metric), process.values[i]);
    }
  }
  return text;
}

}  // namespace corro::obs
