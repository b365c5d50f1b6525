// A Lease as a lock: who leads, decided without comparing clocks of two machines. Pure.
//
// Every candidate reads the record again and again and notes, by its own monotonic clock, when the
// record last changed (observe). The times that stand in the record are never compared with a local
// clock: a candidate takes over when the record has not changed for as long as the record itself
// says. The leader measures from before the request that renewed, so it stops before any other can
// have waited that long: renew_within is shorter than duration. So clocks may differ by an hour;
// only their speeds must be the same.
//
//   candidate                 record                      what it does (decide)
//   follows                   missing                     creates it
//   follows                   released, or unchanged      takes it over (replace, same version)
//                             for its duration
//   follows                   changing                    waits
//   follows                   its own (lost response)     renews it; leads once a renewal is
//                                                         answered
//   leads                     its own                     renews every `retry`
//   leads                     deleted, or another's       has lost
//   leads                     not renewed for             has lost, whatever the server says
//                             renew_within
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/unix_time.h"
#include "kube/client/json.h"
#include "kube/client/resource.h"

namespace corro::kube {

struct LeaseOptions {
  ObjectKey key;   ///< Of the Lease: both parts are needed.
  std::string me;  ///< This candidate's own name, unique among all: pod name and a uuid. Not empty.
  Duration duration = std::chrono::seconds(15);      ///< Whole seconds, 1 s to 1 h.
  Duration renew_within = std::chrono::seconds(10);  ///< Shorter than duration.
  Duration retry = std::chrono::seconds(2);          ///< Shorter than renew_within.
};
/// INVALID_ARGUMENT if a rule above is broken.
[[nodiscard]] Status check(const LeaseOptions& options);

/// The spec of a Lease, and its version for a replace that must not overtake another's.
struct LeaseRecord {
  std::string holder = {};    ///< "" after a release.
  Duration duration = {};     ///< 0 to 1 h.
  std::string acquired = {};  ///< As the API has them: told on, never compared.
  std::string renewed = {};
  int64_t transitions = 0;  ///< How often the holder changed.
  std::string version = {};
  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

/// Reads a Lease. Missing fields are as after a release. INVALID_ARGUMENT "name: place: what" for
/// fields of another type or out of range.
[[nodiscard]] Result<LeaseRecord> read_lease(const Json& lease, std::string_view name);
/// Writes a Lease that replaces the version of `record`, or is new if that is empty.
[[nodiscard]] Json write_lease(const LeaseRecord& record, const ObjectKey& key);

/// A candidate's knowledge. Externally synchronized value.
struct LeaseView {
  std::optional<LeaseRecord> record = {};  ///< As read last.
  Time changed = {};                       ///< When it was first seen so.
  bool was_read = false;
  bool leads = false;
  Time renewed = {};  ///< If it leads: when the last answered renewal was sent.
};

/// Notes what was read (nothing: there is no Lease) at `now`.
void observe(LeaseView& view, std::optional<LeaseRecord> record, Time now);
/// Notes that the server took the record that this candidate sent at `sent`.
void note_renewed(LeaseView& view, LeaseRecord record, Time sent, Time now);

enum class LeaseAction : uint8_t { kWait, kRead, kCreate, kReplace, kLost };

struct LeaseDecision {
  LeaseAction action = LeaseAction::kWait;
  std::string reason = {};            ///< For the log: "held by b, unchanged for 3 s".
  std::optional<LeaseRecord> record;  ///< To be sent by kCreate and kReplace.
};

/// Decides what to do at `now`, the local monotonic clock. `wall` is only written into the record.
/// kLost: stop leading at once, then go on as a follower. Does not change the view.
[[nodiscard]] LeaseDecision decide(const LeaseView& view, const LeaseOptions& options, Time now,
                                   UnixTime wall);

/// Until when a leader leads without another renewal.
[[nodiscard]] Time leads_until(const LeaseView& view, const LeaseOptions& options);

}  // namespace corro::kube
