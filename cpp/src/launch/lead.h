// Lead: that this process leads a job, as the store of the job's record says. A standalone
// coordinator has one; it acts as long as it has that, and not a moment longer.
#pragma once

#include <cstdint>
#include <string>

#include "coord/record_store.h"
#include "launch/job_record.h"

namespace corro::launch {

/// Loop-confined. Calls of the store block, each some seconds at most.
class Lead {
 public:
  /// It has been won, in this term, just now. `store` outlives it.
  Lead(coord::RecordStore& store, uint64_t term, Time now);

  [[nodiscard]] uint64_t term() const { return term_; }
  /// Renews it once a second. To be called when it is due. Whoever was stopped for 8 s leads no
  /// more: agents dial others then, and all that was said to them is uncertain.
  void keep(Time now);
  [[nodiscard]] Time due() const;
  /// This process may act.
  [[nodiscard]] bool holds(Time now) const;
  /// Why it is lost, for people; "": it is not, as far as keep() has looked.
  [[nodiscard]] const std::string& lost() const { return lost_; }
  /// Replaces the job's record; where that fails, it is lost.
  void write(const JobRecord& record);
  /// Somebody else may lead.
  void resign() { store_.resign(); }

 private:
  void lose(const std::string& why);

  coord::RecordStore& store_;
  const uint64_t term_;
  Time kept_;
  std::string lost_;
};

}  // namespace corro::launch
