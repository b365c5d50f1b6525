#include <fmt/format.h>

#include <algorithm>

#include "app/commands.h"
#include "io/interfaces.h"
#include "launch/doctor.h"

namespace corro::app {

int doctor_command(const Request& request) {
  std::vector<launch::Patient> patients;
  for (const pid_t pid : request.doctor_pids) {
    auto found = launch::find_patients_of(pid);
    if (!found.ok()) {
      complain("corro doctor: " + found.status().message());
      return 1;
    }
    for (launch::Patient& patient : *found) {  // A launcher and its rank: that rank once.
      const auto same = [&](const launch::Patient& known) { return known.pid == patient.pid; };
      if (std::ranges::none_of(patients, same)) patients.push_back(std::move(patient));
    }
  }
  if (request.doctor_pids.empty()) patients = launch::find_patients();
  const Time now = monotonic_now();
  if (request.doctor_json) {
    fmt::print("{}", launch::format_patients_json(patients, now));
  } else if (request.doctor_metrics) {
    fmt::print("{}", launch::format_patients_metrics(patients, io::host_name()));
  } else if (patients.empty()) {
    complain("corro doctor: no process of yours on this host has called corro.init()");
  } else {
    fmt::print("{}", launch::format_table(patients, now));
  }
  return patients.empty() ? 1 : 0;
}

}  // namespace corro::app
