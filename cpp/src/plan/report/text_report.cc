#include "plan/report/text_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "plan/amounts.h"
#include "plan/report/facts.h"

namespace corro::plan {
namespace {

constexpr size_t kLabelColumns = 12;
constexpr size_t kMostWhyLines = 4;

/// Escape sequences of ECMA-48, if wanted.
struct Paint {
  std::string_view label;
  std::string_view strong;
  std::string_view off;
};
constexpr Paint kColors{"\x1b[36m", "\x1b[1m", "\x1b[0m"};

void add_line(std::string& text, const Fact& fact, const Paint& paint, bool strong) {
  const std::string value = clipped(fact.value, kReportColumns - kLabelColumns);
  const std::string space(kLabelColumns - std::min(kLabelColumns, fact.label.size()), ' ');
  text += fmt::format("{}{}{}{}{}{}{}\n", paint.label, fact.label, paint.off, space,
                      strong ? paint.strong : "", value, strong ? paint.off : "");
}

void add_why(std::string& text, const std::string& why, const Paint& paint) {
  auto lines = wrapped(why, kReportColumns - kLabelColumns);
  if (lines.size() > kMostWhyLines) {
    lines.resize(kMostWhyLines);
    lines.back() = clipped(lines.back() + " …", kReportColumns - kLabelColumns);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    add_line(text, {i == 0 ? "why" : "", lines[i]}, paint, false);
  }
}

/// A row of the comparison: a number in both, and how much more b has.
std::vector<std::string> row_of(std::string label, double a, double b, auto text_of) {
  const bool differ = a != 0 && b != 0 && std::abs(b / a - 1) >= 5e-4;
  return {std::move(label), a == 0 ? "-" : text_of(a), b == 0 ? "-" : text_of(b),
          differ ? fmt::format("{:+.1f} %", 100 * (b / a - 1)) : ""};
}

std::vector<std::string> row_of(std::string label, const std::string& a, const std::string& b) {
  return {std::move(label), a, b, a == b ? "" : "differs"};
}

void add_decision_rows(Table& table, const DecisionFile& a, const DecisionFile& b) {
  const auto add = [&](std::string_view label, auto text_of) {
    table.rows.push_back(row_of(std::string(label), text_of(a), text_of(b)));
  };
  const auto add_shape = [&](std::string_view label, auto text_of) {
    add(label, [&](const DecisionFile& file) { return text_of(file.decision.best.shape); });
  };
  const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
  add("model", [](const DecisionFile& file) { return file.model.name; });
  add("cluster", [](const DecisionFile& file) { return file.cluster.name; });
  add("machines", [](const DecisionFile& file) { return machines_text(file.cluster); });
  add("global batch",
      [](const DecisionFile& file) { return integer_text(file.decision.global_batch); });
  add_shape("tp x cp x ep x dp x pp", degrees_text);
  add_shape("micro-batches", batch_text);
  add_shape("schedule", schedule_text);
  add_shape("ZeRO", [](const JobShape& shape) { return fmt::format("{}", shape.zero); });
  add_shape("sequence parallel",
            [&](const JobShape& shape) { return yes(shape.sequence_parallel); });
  add("bucket", [](const DecisionFile& file) {
    const double bucket = bucket_of(file.decision.best);
    return bucket > 0 ? bytes_text(bucket) : "-";
  });
  add_shape("offload", [](const JobShape& shape) { return std::string(name_of(shape.offload)); });
  add_shape("dtype", [](const JobShape& shape) { return std::string(name_of(shape.dtype)); });
  add_shape("gradients' dtype",
            [](const JobShape& shape) { return std::string(name_of(shape.gradient_dtype)); });
  add("recompute", [](const DecisionFile& file) { return recompute_text(file.decision.best); });
}

void add_prediction_rows(Table& table, const DecisionFile& a, const DecisionFile& b) {
  const auto add = [&](std::string_view label, auto number_of, auto text_of) {
    table.rows.push_back(row_of(std::string(label), number_of(a), number_of(b), text_of));
  };
  using File = const DecisionFile&;
  add("step time", [](File f) { return f.decision.best.step; }, seconds_text);
  add("simulated", [](File f) { return f.decision.best.simulated; }, seconds_text);
  add(
      "samples/s", [](File f) { return samples_per_second(f.decision, f.decision.best); },
      count_text);
  add(
      "tokens/s",
      [](File f) { return samples_per_second(f.decision, f.decision.best) * f.model.sequence; },
      count_text);
  add("MFU", [](File f) { return f.decision.eta; }, percent_text);
  add("memory, fullest", [](File f) { return fullest_bytes(f); }, bytes_text);
  add("to the end", [](File f) { return f.decision.hours; }, hours_text);
  add("cost", [](File f) { return f.decision.cost; }, money_text);
  add("storage, B/s", [](File f) { return f.decision.lambda; }, bytes_text);
  const auto bound = [](File f) {
    return f.decision.objective == Objective::kTime ? f.decision.bound : 0;
  };
  add("bound", bound, seconds_text);
  table.rows.push_back(row_of("gap", percent_text(a.decision.gap), percent_text(b.decision.gap)));
  table.rows.back().back().clear();
  table.rows.push_back(row_of("limited by", a.decision.limit, b.decision.limit));
}

}  // namespace

std::string format_decision(const DecisionFile& file, bool color) {
  const Paint paint = color ? kColors : Paint{};
  const Facts facts = facts_of(file);
  std::string text;
  for (const Fact& fact : facts.decisions) add_line(text, fact, paint, false);
  text += '\n';
  for (const Fact& fact : facts.predictions) {
    add_line(text, fact, paint, &fact == &facts.predictions.front());
  }
  text += '\n';
  for (const Fact& fact : facts.certificates) add_line(text, fact, paint, false);
  add_why(text, file.decision.why, paint);
  return text;
}

std::string explain_decision(const DecisionFile& file) {
  std::string text;
  for (const Table& table : explanation_of(file)) {
    text += (text.empty() ? "" : "\n") + table_to_text(table);
  }
  return text;
}

std::string compare_decisions(const DecisionFile& a, std::string_view name_a, const DecisionFile& b,
                              std::string_view name_b) {
  constexpr size_t kNameColumns = 36;
  Table table{
      .head = {"", clipped(name_a, kNameColumns), clipped(name_b, kNameColumns), "the second"}};
  add_decision_rows(table, a, b);
  add_prediction_rows(table, a, b);
  for (auto& row : table.rows) {
    row[1] = clipped(row[1], kNameColumns);
    row[2] = clipped(row[2], kNameColumns);
  }
  return table_to_text(table);
}

}  // namespace corro::plan
