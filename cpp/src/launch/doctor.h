// What every corro process on this host is doing, read from outside while it runs or hangs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "obs/flight_recorder.h"

namespace corro::launch {

struct Patient {
  pid_t pid = 0;
  std::string job;   ///< CORRO_JOB_ID of the process; "" if it has none.
  char state = '?';  ///< As in /proc/<pid>/stat: R, S, D, T, Z.
  obs::ProcessSnapshot flight;
};

/// Reads the flight recorders of all processes of this user. A recorder says who writes it: whoever
/// else holds it, a forked child or the launcher, is left out.
[[nodiscard]] std::vector<Patient> find_patients();
/// Reads the recorder of one process; the failure names it.
[[nodiscard]] Result<Patient> read_patient(pid_t pid);
/// The process itself or, if it is no rank but a launcher, say, the ranks below it; for a rank's
/// child, what the rank does. The failure names it.
[[nodiscard]] Result<std::vector<Patient>> find_patients_of(pid_t pid);

/// Says in one line each which ranks the others wait for and what these do instead; nothing if no
/// rank waits. Pure.
[[nodiscard]] std::vector<std::string> diagnose(const std::vector<Patient>& patients, Time now);

/// A table with one line for each process, and the diagnosis below it.
[[nodiscard]] std::string format_table(const std::vector<Patient>& patients, Time now);
[[nodiscard]] std::string format_patients_json(const std::vector<Patient>& patients, Time now);
/// Their metrics as Prometheus reads them.
[[nodiscard]] std::string format_patients_metrics(const std::vector<Patient>& patients,
                                                  const std::string& host);

}  // namespace corro::launch
