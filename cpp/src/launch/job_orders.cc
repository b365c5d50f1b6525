#include "launch/job_orders.h"

#include <utility>

#include "launch/rank_start.h"

namespace corro::launch {

void JobOrders::carry_out() {
  JobCourse& course = job_.course;
  for (std::vector<JobOrder> orders = course.take_orders(); !orders.empty();
       orders = course.take_orders()) {
    job_.agents.enter(course.epoch());
    for (const JobOrder& order : orders) {
      if (!leadership_.holds()) return;
      std::visit([this](const auto& what) { carry_out(what); }, order);
    }
  }
}

void JobOrders::carry_out(const TellAll& order) {
  order.from ? job_.agents.pass_on(*order.from, order.message)
             : job_.agents.send_all(order.message);
}

void JobOrders::carry_out(const StartRank& order) {
  agent::Start start = order.joins ? joiner_start_of(job_.plan, order.seat, secret_)
                                   : start_of(job_.plan, order.seat, secret_);
  start.environment["CORRO_MEMBER_UUID"] = wire::to_hex(order.about.member);
  // Also where it is not: a job may be started by a rank of another one.
  start.environment["CORRO_ELASTIC"] = job_.course.elastic() ? "1" : "0";
  if (start.input == agent::StandardInput::kSent) input_.start();
  job_.agents.send(order.seat.host, {order.about, std::move(start)});
}

void JobOrders::carry_out(const StartServer& order) {
  job_.agents.send(order.host,
                   {order.about, server_start_of(job_.plan, static_cast<int>(order.server),
                                                 order.host, secret_)});
}

void JobOrders::carry_out(const Announce& order) {
  job_.output.emit(order.event);
  job_.display.hear(order.event);
  progress_.hear(order.event, job_.course.ranks().size(), monotonic_now(), wall_now());
}

/// The course knows the members, and the agents the hosts.
void JobOrders::carry_out(const Remember& order) {
  JobRecord record = order.record;
  record.hosts.clear();
  for (const AgentLink& link : job_.agents.links()) {
    const JobHost& host = job_.plan.job.hosts[link.host];
    record.hosts.push_back({.name = host.name,
                            .slots = host.slots(),
                            .address = host.address,
                            .id = host.id,
                            .gone = link.gone || job_.awaits(link)});
  }
  leadership_.write(std::move(record));
}

}  // namespace corro::launch
