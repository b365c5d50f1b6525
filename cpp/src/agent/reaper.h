// Reaper: reaps what ends below the agent: ranks, what they have left behind, and the remote shells
// of branches. It finds out how a rank has ended, and tells the course.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include "agent/branches.h"
#include "agent/course_orders.h"
#include "agent/out_of_memory.h"
#include "agent/rank_streams.h"
#include "agent/station.h"
#include "agent/worker_service.h"
#include "io/fd.h"

namespace corro::agent {

/// Loop-confined. Made before the first rank starts.
class Reaper {
 public:
  Reaper(Station& station, WorkerService& workers, CourseOrders& orders, RankStreams& streams,
         Branches& branches)
      : station_(station),
        workers_(workers),
        orders_(orders),
        streams_(streams),
        branches_(branches) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  /// From now on it reaps. SIGCHLD is blocked.
  Status open();

 private:
  void reap();
  void look_for_lack_of_memory(size_t rank, const siginfo_t& ended);
  void on_rank_end(size_t rank, int status);
  void tell_departures();

  Station& station_;
  WorkerService& workers_;
  CourseOrders& orders_;
  RankStreams& streams_;
  Branches& branches_;
  OutOfMemoryWatch out_of_memory_;
  io::Fd signals_;  ///< Tells that a child has ended.
};

}  // namespace corro::agent
