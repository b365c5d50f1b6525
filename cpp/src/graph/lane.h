// Lane: how the work of one serial resource is begun: a communicator, a compute pool, a copy
// engine, virtual time.
//
//   class Inline final : public Lane {
//     void start(Time, const Work& work) override { work.launch(work.firing); }
//   };
#pragma once

#include <string_view>

#include "base/clock.h"
#include "graph/service.h"

namespace corro::graph {

/// One firing on its way to a lane. `launch` stays valid until the firing is complete, the rest
/// during start().
struct Work {
  std::string_view name;
  Duration duration;  ///< As the plan predicts it; zero for one-shots.
  const Launch& launch;
  Firing firing;
};

/// The executor decides what starts and when (order, depth, credits); the lane only begins it,
/// where it belongs.
class Lane {
 public:
  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  virtual ~Lane() = default;

  /// Begins the work and returns without blocking. Executor::complete ends it: later, or from
  /// inside this call.
  virtual void start(Time now, const Work& work) = 0;
};

}  // namespace corro::graph
