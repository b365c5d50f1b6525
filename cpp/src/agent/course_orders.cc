#include "agent/course_orders.h"

#include <csignal>

namespace corro::agent {

void CourseOrders::carry_out() {
  for (std::vector<AgentOrder> orders = station_.course.take_orders(); !orders.empty();
       orders = station_.course.take_orders()) {
    for (const AgentOrder& order : orders)
      std::visit([this](const auto& what) { carry_out(what); }, order);
  }
}

void CourseOrders::carry_out(const Report& order) {
  const RankProcess& rank = station_.ranks[order.rank];
  const Duration clock = monotonic_now().since_start;
  diagnosis::RankEnd end = order.ended ? rank.describe() : rank.look();
  end.rank = station_.course.about(order.rank).rank;
  order.ended ? station_.say(order.rank, Ended{std::move(end), clock})
              : station_.say(order.rank, Seen{std::move(end), clock});
}

void CourseOrders::carry_out(const SendSignal& order) {
  order.rank ? station_.ranks[*order.rank].send(order.number) : station_.ranks.send(order.number);
}

void CourseOrders::carry_out(const KillRest& order) {
  for (const pid_t pid : order.processes) kill(pid, SIGKILL);
}

}  // namespace corro::agent
