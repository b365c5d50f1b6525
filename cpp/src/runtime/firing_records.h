// FiringRecords: what others see of a loaded plan's firings: a record of the flight recorder while one
// is in flight and after it, an event of the timeline once it is over.
//
//   executor   on_start()   begins the record: service, lane, micro-batch
//   lane       record_of()  to say there how far the firing is, and for whom it waits
//              computed()   when a thread has had it, if that is not the time between the other two
//   executor   on_end()     ends the record, and notes the event
//
// A service never overlaps itself, so each has room for one firing. Nothing is allocated after the
// loading.
#pragma once

#include <string>
#include <vector>

#include "graph/executor.h"
#include "runtime/flight.h"

namespace corro::runtime {

/// Loop-confined. Services are those of the part.
class FiringRecords final : public graph::FiringObserver {
 public:
  /// Every service is none of the operations. Borrows the parts.
  FiringRecords(const graph::Plan& part, EngineParts& parts);
  /// What threads still have is cancelled.
  ~FiringRecords() override;

  /// The service is this operation of the lane that members know by `key`; it begins in `phase`.
  void set_operation(graph::ServiceId service, const LaneKey& key,
                     const collective::OpRequest& request, obs::Phase phase);

  void on_start(graph::ServiceId service, graph::Generation generation) override;
  void on_end(graph::ServiceId service, const Status& status) override;
  /// Of the firing in flight.
  [[nodiscard]] obs::FlightRecorder::Handle record_of(graph::ServiceId service) const {
    return services_[service].record;
  }
  /// The firing in flight, which is about to end, was computed from `since` to `until`.
  void computed(graph::ServiceId service, Time since, Time until);

 private:
  struct Service {
    std::string name;
    std::string lane;
    obs::OpRecord what = {};  ///< Its texts are the two above.
    obs::Phase phase = obs::Phase::kRun;
    bool in_flight = false;
    obs::FlightRecorder::Handle record = 0;
    Time since = {};
    Time until = {};  ///< Zero: when it ends.
  };

  EngineParts& parts_;
  std::vector<Service> services_;
};

}  // namespace corro::runtime
