// CourseOrders: carries out what the course orders (agent_course.h).
//
// A part that tells the course something calls carry_out() then, before anything else is heard. So
// the commander hears of events in their order.
#pragma once

#include "agent/station.h"
#include "agent/worker_service.h"

namespace corro::agent {

/// Loop-confined.
class CourseOrders {
 public:
  CourseOrders(Station& station, WorkerService& workers) : station_(station), workers_(workers) {}

  /// All of them, in order.
  void carry_out();

 private:
  void carry_out(const Say& order) { station_.commander.send(order.message); }
  void carry_out(const Report& order);
  void carry_out(const SendSignal& order);
  void carry_out(const KillRank& order) { station_.ranks[order.rank].kill_all(); }
  void carry_out(const KillRest& order);
  /// All other orders are for the engines of ranks.
  void carry_out(const auto& order) { workers_.carry_out(order); }

  Station& station_;
  WorkerService& workers_;
};

}  // namespace corro::agent
