#include "plan/cost/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace corro::plan {

Result<Machine> machine_of(const Cluster& cluster, const Calibration& calibration) {
  const HostGroup& first = cluster.hosts.front();
  for (const HostGroup& group : cluster.hosts) {
    if (group.type == first.type && group.devices == first.devices && group.link == first.link &&
        group.network == first.network) {
      continue;
    }
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: hosts {} and {} differ; runs are of one kind of hosts",
                              cluster.name, first.name, group.name));
  }
  Machine machine{.device = cluster.types[first.type],
                  .host = first,
                  .between_hosts = first.network,
                  .calibration = calibration};
  for (uint32_t host = 1; host < cluster.host_count(); ++host) {
    const Link link = cluster.link_between_hosts(0, host);
    if (host > 1 && link.bandwidth >= machine.between_hosts.bandwidth) continue;
    machine.between_hosts = link;
  }
  return machine;
}

Result<FitReport> report_fit(std::span<const MeasuredRun> runs, const Machine& machine) {
  std::vector<MeasuredRun> timed;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(timed),
               [](const MeasuredRun& run) { return run.seconds.has_value(); });
  FitReport report{.runs = timed.size()};
  CORRO_ASSIGN(report.fit, fit_calibration(timed, machine));
  if (timed.size() < 2) return report;
  CORRO_ASSIGN(report.leave_one_out, leave_one_out_error(timed, machine));
  CORRO_ASSIGN(report.models, leave_models_out(timed, machine));
  return report;
}

std::string format_fit(const FitReport& report) {
  std::string text = fmt::format("fitted to {} runs\n\n", report.runs);
  for (const CalibrationField& field : kCalibrationFields) {
    text += fmt::format("  {:<20}{:>11.4g}\n", field.name, report.fit.calibration.*field.field);
  }
  text += fmt::format(
      "\nerror of the predicted step: mean {:.1f} %, median {:.1f} %, worst {:.1f} %\n",
      100 * report.fit.mean_error, 100 * report.fit.median_error, 100 * report.fit.worst_error);
  if (report.runs < 2) return text;
  const size_t every = (report.runs + kMostFits - 1) / kMostFits;
  text +=
      fmt::format("each run{} from a fit to the others: mean {:.1f} %\n",
                  every == 1 ? "" : fmt::format(" (1 in {})", every), 100 * report.leave_one_out);
  if (report.models.empty()) return text;
  text += fmt::format(
      "\neach model from a fit to the others; regret: what the pick takes over the fastest run\n\n"
      "  {:<28}{:>6}{:>10}{:>10}{:>10}\n",
      "model", "runs", "mean", "median", "regret");
  double mean = 0;
  double regret = 0;
  for (const LeftOut& left : report.models) {
    text += fmt::format("  {:<28}{:>6}{:>8.1f} %{:>8.1f} %{:>8.1f} %\n", left.model, left.runs,
                        100 * left.mean_error, 100 * left.median_error, 100 * left.regret);
    mean += left.mean_error * static_cast<double>(left.runs) / static_cast<double>(report.runs);
    regret = std::max(regret, left.regret);
  }
  return text + fmt::format("  {:<28}{:>6}{:>8.1f} %{:>10}{:>8.1f} %\n", "all, worst regret",
                            report.runs, 100 * mean, "", 100 * regret);
}

Result<std::string> predictions_csv(const RunTable& table, const Machine& machine,
                                    std::string_view name) {
  constexpr double kGiB = 1U << 30U;
  std::string text = table.header + ",predicted_ms,predicted_gib\n";
  for (size_t i = 0; i < table.runs.size(); ++i) {
    const auto prediction = predict(table.runs[i], machine);
    if (!prediction.ok()) {
      return prediction.status().with_context(fmt::format("{}: run {}", name, i + 1));
    }
    text += fmt::format("{},{:.3f},{:.3f}\n", table.lines[i], 1e3 * prediction->seconds,
                        prediction->bytes / kGiB);
  }
  return text;
}

}  // namespace corro::plan
