// Leadership: whether a launcher may act for its job, and what it writes down for whoever goes on
// with the job.
//
//   alone     the agents are of this launcher: nobody else can lead, and nothing is written
//   leading   a standalone coordinator has the lead (lead.h), and keeps it
//   lost      another coordinator leads, or may: this one says and does nothing more
//   over      the record says that the job is over. Nobody else can lead it, so the lead is needed
//             no more
#pragma once

#include <optional>
#include <string>

#include "launch/job_record.h"
#include "launch/lead.h"

namespace corro::launch {

/// Loop-confined.
class Leadership {
 public:
  /// `lead`: null for a launcher that has started the agents. It outlives this.
  explicit Leadership(Lead* lead) : lead_(lead) {}

  /// Whether this launcher may act.
  [[nodiscard]] bool holds(Time now = monotonic_now()) const {
    return lead_ == nullptr || record_.over || lead_->holds(now);
  }
  /// To be called when it is due.
  void keep(Time now);
  [[nodiscard]] Time due() const;
  /// Why the lead is lost, for people; "": it is not.
  [[nodiscard]] std::string lost() const { return lead_ == nullptr ? "" : lead_->lost(); }

  /// Replaces the job's record. Where that fails, the lead is lost.
  void write(JobRecord record);
  /// The job with this id is over: nobody goes on with it. `ending`: how, if that is
  /// known.
  void end(const std::string& job_id, const std::optional<Ending>& ending);
  [[nodiscard]] bool over() const { return record_.over; }

 private:
  Lead* const lead_;
  JobRecord record_;  ///< As it was written last.
};

}  // namespace corro::launch
