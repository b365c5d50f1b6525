// RecordStore: where a coordinator keeps its record, and which one of several coordinators leads.
//
//   CORRO_ASSIGN(const std::optional<uint64_t> term, store.try_lead("host1, process 4711"));
//   if (term) CORRO_TRY(store.write("what the next leader has to know"));
//
// A store has one leader at a time. Each lead has a term, and a later lead has a higher one. The
// record has no meaning here: it is bytes.
//
//   try_lead()   nobody leads: this one does from now on, with a new term
//   renew()      each second. In a store that counts time a lead ends kLeaseTime after its last
//                renewal; in a file it ends with the process alone
//   write()      the store itself compares who leads, so a leader that was stopped, and goes on
//                when another one leads, changes nothing
//   resign()     the next one need not wait for the lease's end. Without it, as after SIGKILL, a
//                lead ends by itself
//
// Where a store cannot be reached, the lead goes on until leads_until(). That is a second before
// another one can lead (kLeaseMargin), for clocks that do not run alike. Nothing that needs the
// lead may be done later than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace corro::coord {

/// A ConfigMap holds 1 MiB, and needs some of it for more than the record; etcd refuses requests
/// above 1.5 MiB.
inline constexpr size_t kMostRecordBytes = size_t{1000} << 10U;
inline constexpr Duration kLeaseTime = std::chrono::seconds(5);
inline constexpr Duration kLeaseMargin = std::chrono::seconds(1);

/// Every call blocks, a few seconds at most. UNAVAILABLE and DEADLINE_EXCEEDED: the store cannot be
/// reached, and what was asked for may have happened or not. Externally synchronized.
class RecordStore {
 public:
  virtual ~RecordStore() = default;

  /// Tries to become the leader; `name` is for people: "host1, process 4711". Returns the term,
  /// which is higher than that of every lead before; nothing if somebody else leads. A leader gets
  /// its own term again.
  [[nodiscard]] virtual Result<std::optional<uint64_t>> try_lead(const std::string& name) = 0;
  /// Returns the name that the leader has given itself; "" if nobody leads.
  [[nodiscard]] virtual Result<std::string> leader() = 0;
  /// The record as it was written last, by whichever leader; "" if there is none yet.
  [[nodiscard]] virtual Result<std::string> read() = 0;
  /// Replaces the record; it is durable when this returns. ABORTED if somebody else leads, or
  /// nobody, and RESOURCE_EXHAUSTED above kMostRecordBytes: nothing has changed then. After any
  /// other failure the record is the old one or this one, whole, and may still become this one until
  /// the next write succeeds or the next lead begins; it may be written again.
  [[nodiscard]] virtual Status write(const std::string& record) = 0;
  /// To be called each second by the leader. ABORTED if the lead is lost.
  [[nodiscard]] virtual Status renew() = 0;
  /// Until then, by monotonic_now(), nobody else can lead; Time::never() where the lead lasts as
  /// long as the process; Time{} without the lead. Asks nobody.
  [[nodiscard]] virtual Time leads_until() const = 0;
  /// Shows people what the job does (launch/progress.h), where the store has a place for that. Nobody
  /// is told if that fails.
  virtual void show(const std::string& /*progress*/) {}
  /// Gives the lead up; the next one can lead at once, or after kLeaseTime if the store cannot be
  /// reached. Does nothing without the lead. A destructor alone leaves a lease to end by itself.
  virtual void resign() = 0;
};

/// RESOURCE_EXHAUSTED "WHERE: ..." for a record above kMostRecordBytes.
[[nodiscard]] Status check_size(const std::string& record, const std::string& where);
/// ABORTED "WHERE: LEADER leads, ..."; `leader` is "" if nobody does.
[[nodiscard]] Status not_leading(const std::string& leader, const std::string& where);

}  // namespace corro::coord
