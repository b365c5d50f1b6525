// The standalone coordinator: `corro run` to which agents dial in, and of which several may wait to
// take over.
//
//   standing by  another one leads, as the store says. When that ends, this one does
//   gathering    a job that has not begun: until agents offer enough slots
//   leading      the launcher runs the job (launch/launcher.h), from its beginning, or from where
//                another coordinator has left it
//   over         the job has ended, and the record says how
//
// Who loses its lead ends, and its program starts itself once more: it stands by then.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/variables.h"
#include "launch/job_record.h"
#include "launch/options.h"
#include "launch/plan.h"
#include "secure/tls_stream.h"

namespace corro::coordinator {

struct CoordinatorOptions {
  std::string store;   ///< As open_store() reads it.
  std::string listen;  ///< "10.0.0.1:7078"; port 0 takes a free one.
  launch::RunOptions run;
  std::string own_directory;  ///< That of the program `corro`.
  std::string version;
  /// The job is of this round: one of another round, whose record is in the store, is of the past.
  /// "": there are no rounds.
  std::string round = "";
  /// Somebody has given it its rights on the store: one that refuses it is waited for, as one that
  /// is away.
  bool has_rights = false;
  /// Hosts of which people are told when they do not come.
  std::vector<std::string> expected = {};
};

/// By what the job's agents are known, and its ranks know each other.
struct Trust {
  secure::Tls::FindKey find_key;  ///< Of agents.
  wire::Secret secret{};          ///< That of the ranks follows from it.
};

/// In the place of a status: the lead is lost.
inline constexpr int kStartAnew = -1;

/// How a coordinator has ended.
struct Outcome {
  int status = 0;  ///< The job's exit status, 2 if it cannot begin, or kStartAnew.
  /// The job is over, so. None: it is not; what has ended this one is trouble of its own.
  std::optional<launch::Ending> job = std::nullopt;
};

/// Runs the job to its end; returns Outcome::status. The calling process has no threads, and runs
/// nothing else; its signal mask is as it was then.
[[nodiscard]] int run_coordinator(const CoordinatorOptions& options, const Variables& environment);
/// The same for agents of other kinds than `corro agent --coordinator`. `inputs`: for the plan, but
/// for what is known later: hosts, job and record. `environment`: of the store.
[[nodiscard]] Outcome run_coordinator(const CoordinatorOptions& options, launch::PlanInputs inputs,
                                      const Trust& trust, const Variables& environment);

}  // namespace corro::coordinator
