#include "launch/doctor.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "agent/out_of_memory.h"
#include "agent/processes.h"
#include "diagnosis/flight_text.h"
#include "diagnosis/report.h"
#include "io/files.h"
#include "obs/exposition.h"
#include "obs/metrics_reader.h"

namespace corro::launch {
namespace {

std::vector<pid_t> own_processes() {
  std::vector<pid_t> pids = agent::all_processes();
  std::erase_if(pids, [](pid_t pid) {
    struct stat info{};
    return stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0 || info.st_uid != geteuid();
  });
  std::ranges::sort(pids);
  return pids;
}

std::string variable_of(pid_t pid, const std::string& name) {
  const std::string all =
      std::string(1, '\0') + io::read_small_file(fmt::format("/proc/{}/environ", pid));
  const std::string wanted = std::string(1, '\0') + name + "=";
  const size_t at = all.find(wanted);
  return at == std::string::npos ? "" : std::string(all.c_str() + at + wanted.size());
}

/// The pid that a process has for itself: another one than here if it runs in a container.
pid_t pid_inside(pid_t pid) {
  const std::string all = agent::status_field(pid, "NSpid");  // the innermost one is the last
  const size_t last = all.rfind('\t') + 1;                    // 0 where there is but one
  return all.empty() ? pid : static_cast<pid_t>(std::strtol(all.c_str() + last, nullptr, 10));
}

bool is_going_on(const obs::OpSnapshot* op) {
  return op != nullptr && op->phase != obs::Phase::kDone && op->phase != obs::Phase::kFailed;
}

std::string since_text(const obs::OpSnapshot& op, Time now) {
  const uint64_t stamp = std::max({op.queued_ns, op.started_ns, op.done_ns});
  const Duration span = now.since_start - Duration(static_cast<int64_t>(stamp));
  return diagnosis::format_span(std::max(span, Duration::zero()));
}

std::string instead(const Patient& patient, Time now) {
  if (patient.state == 'T' || patient.state == 't') {
    return fmt::format("stopped; kill -CONT {} lets it go on", patient.pid);
  }
  if (patient.state == 'Z') return "ended";
  return diagnosis::describe_progress(patient.flight, now);
}

/// Metrics that tell in the table how much goes on.
std::string total_text(const Patient& patient, std::string_view metric) {
  const auto total = obs::total_of(patient.flight.metrics, metric);
  return total ? std::to_string(*total) : "-";
}

std::string bytes_text(const Patient& patient, std::string_view metric) {
  const auto total = obs::total_of(patient.flight.metrics, metric);
  return total ? agent::format_bytes(*total) : "-";
}

/// By name; a metric with transports is an object.
nlohmann::ordered_json metrics_json(const obs::MetricValues& values) {
  auto json = nlohmann::ordered_json::object();
  for (size_t i = 0; i < values.size(); ++i) {
    const obs::MetricInfo& metric = obs::all_metrics()[i];
    if (metric.transport.empty()) {
      json[std::string(metric.name)] = values[i];
    } else {
      json[std::string(metric.name)][std::string(metric.transport)] = values[i];
    }
  }
  return json;
}

/// Those that write the recorder which they hold: no forked children, no launcher.
std::vector<Patient> writers_among(const std::vector<pid_t>& pids) {
  std::vector<Patient> patients;
  for (const pid_t pid : pids) {
    auto patient = read_patient(pid);
    if (patient.ok() && patient->flight.pid == pid_inside(pid)) {
      patients.push_back(std::move(*patient));
    }
  }
  std::ranges::sort(patients, [](const Patient& a, const Patient& b) {
    return std::tie(a.job, a.flight.rank, a.pid) < std::tie(b.job, b.flight.rank, b.pid);
  });
  return patients;
}

}  // namespace

Result<Patient> read_patient(pid_t pid) {
  CORRO_ASSIGN(auto flight, obs::read_flight_of(pid));
  return Patient{.pid = pid,
                 .job = variable_of(pid, "CORRO_JOB_ID"),
                 .state = agent::process_state(pid),
                 .flight = std::move(flight)};
}

std::vector<Patient> find_patients() { return writers_among(own_processes()); }

Result<std::vector<Patient>> find_patients_of(pid_t pid) {
  if (auto own = writers_among({pid}); !own.empty()) return own;
  if (agent::process_state(pid) == '?')
    return Status(Code::kNotFound, fmt::format("no process {}", pid));
  const std::vector<pid_t> below = agent::descendants_of(pid);
  if (auto ranks = writers_among(below); !ranks.empty()) return ranks;
  auto holder = read_patient(pid);
  // A rank's child holds its recorder; so does a launcher, which is not below it.
  if (holder.ok() && std::ranges::count(agent::descendants_of(holder->flight.pid), pid) > 0)
    return std::vector{std::move(holder).value()};
  if (!holder.ok() && below.empty()) return holder.status();
  return Status(Code::kNotFound,
                fmt::format("neither process {} nor one below it has called corro.init()", pid));
}

std::vector<std::string> diagnose(const std::vector<Patient>& patients, Time now) {
  std::map<std::pair<std::string, int>, std::vector<int>> waiting;  // (job, awaited) -> ranks
  for (const Patient& patient : patients) {
    const auto* op = diagnosis::telling_operation(patient.flight);
    if (is_going_on(op) && op->waiting_for >= 0) {
      waiting[{patient.job, op->waiting_for}].push_back(patient.flight.rank);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [who, ranks] : waiting) {
    const auto awaited = std::ranges::find_if(patients, [&](const Patient& p) {
      return p.job == who.first && p.flight.rank == who.second;
    });
    std::string what = ": not on this host, or it has ended";
    if (awaited != patients.end()) {
      what = fmt::format(" (pid {}): {}", awaited->pid, instead(*awaited, now));
    }
    lines.push_back(fmt::format("{} {} for rank {}{}", diagnosis::format_ranks(ranks),
                                ranks.size() == 1 ? "waits" : "wait", who.second, what));
  }
  return lines;
}

std::string format_table(const std::vector<Patient>& patients, Time now) {
  std::string text = fmt::format(
      "{:<18} {:>4} {:>8} {:<2} {:>7} {:<40} {:<9} {:<12} {:<8} {:>9} {:>6} {:>9} {:>9}\n", "job",
      "rank", "pid", "st", "step", "last operation", "phase", "waiting for", "since", "ops",
      "failed", "sent", "received");
  for (const Patient& patient : patients) {
    const auto* op = diagnosis::telling_operation(patient.flight);
    const bool waits = op != nullptr && op->waiting_for >= 0;
    text += fmt::format(
        "{:<18} {:>4} {:>8} {:<2} {:>7} {:<40} {:<9} {:<12} {:<8} {:>9} {:>6} {:>9} {:>9}\n",
        patient.job.empty() ? "-" : patient.job, patient.flight.rank, patient.pid, patient.state,
        patient.flight.step, op ? diagnosis::describe_operation(*op) : "none",
        op ? name_of(op->phase) : "-", waits ? fmt::format("rank {}", op->waiting_for) : "-",
        op ? since_text(*op, now) : "-", total_text(patient, "ops"),
        total_text(patient, "failures"), bytes_text(patient, "bytes_sent"),
        bytes_text(patient, "bytes_received"));
  }
  for (const std::string& line : diagnose(patients, now)) text += "\n" + line;
  return text + (text.ends_with('\n') ? "" : "\n");
}

std::string format_patients_json(const std::vector<Patient>& patients, Time now) {
  auto list = nlohmann::ordered_json::array();
  for (const Patient& patient : patients) {
    const auto* op = diagnosis::telling_operation(patient.flight);
    nlohmann::ordered_json json;
    json["job"] = patient.job;
    json["rank"] = patient.flight.rank;
    json["size"] = patient.flight.size;
    json["pid"] = patient.pid;
    json["state"] = std::string(1, patient.state);
    json["step"] = patient.flight.step;
    json["operations"] = patient.flight.operations;
    json["op"] = nullptr;
    if (op != nullptr) {
      if (op->op.kind) json["op"] = name_of(*op->op.kind);
      const uint64_t stamp = std::max({op->queued_ns, op->started_ns, op->done_ns});
      json["op_number"] = nullptr;
      if (op->is_firing()) {
        json["micro_batch"] = op->op.op_id;
        json["lane"] = op->plan_lane;
      } else if (op->op.op_id != obs::kNoOpId) {
        json["op_number"] = op->op.op_id + 1;  // As in messages.
      }
      json["name"] = op->name;
      json["dtype"] = name_of(op->op.dtype);
      json["count"] = op->op.count;
      json["phase"] = name_of(op->phase);
      json["code"] = code_name(op->code);
      json["waiting_for"] = op->waiting_for;
      json["since_seconds"] =
          std::chrono::duration<double>(now.since_start - Duration(static_cast<int64_t>(stamp)))
              .count();
    }
    json["metrics"] = metrics_json(patient.flight.metrics);
    list.push_back(std::move(json));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string format_patients_metrics(const std::vector<Patient>& patients, const std::string& host) {
  std::vector<obs::LabelledMetrics> processes;
  for (const Patient& patient : patients) {
    processes.push_back({.job = patient.job,
                         .host = host,
                         .rank = patient.flight.rank,
                         .pid = patient.pid,
                         .values = patient.flight.metrics,
                         .steps = patient.flight.steps});
  }
  return obs::format_exposition(processes);
}

}  // namespace corro::launch
