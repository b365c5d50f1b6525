#include "agent/worker_service.h"

#include <sys/epoll.h>

#include "wire/server_number.h"

namespace corro::agent {

Status WorkerService::open(const Start& start) {
  surveyor_.close_routes();
  if (service_ != nullptr) return {};
  wire::AgentService::Options options;
  options.job = start.job;
  options.secret = start.secret;
  options.size = start.size;
  options.servers = start.servers;
  options.name = start.agent;
  options.on_hello = [this](wire::WorkerHello hello) { on_hello(std::move(hello)); };
  options.on_put = [this](const std::string& key, const Bytes& value) { on_put(key, value); };
  options.on_ready = [this](const wire::WorkerReady& ready) { on_ready(ready); };
  options.on_leave = [this](const std::string& member) { on_leave(member); };
  options.on_notice = [this](const wire::WorkerNotice& heard) { on_notice(heard); };
  name_ = start.agent;
  CORRO_ASSIGN(service_, wire::AgentService::create(std::move(options)));
  return station_.loop.watch(service_->poll_fd(), EPOLLIN, [this] { poll(); });
}

void WorkerService::poll() {
  const Status status = service_->poll();
  on_said_();
  if (status.ok()) return;
  station_.say(Trouble{"the agent has to stop: " + status.message()});
  station_.loop.forget(service_->poll_fd());
}

// -- what engines say -----------------------------------------------------------------------------

void WorkerService::on_hello(wire::WorkerHello hello) {
  if (wire::is_server(hello.rank)) return on_server(std::move(hello));
  const auto rank = station_.course.find_number(hello.rank);
  if (!rank) return;
  if (!hello.descriptors.empty()) station_.ranks[*rank].set_flight(std::move(hello.descriptors[0]));
  station_.course.on_join(*rank);
}

/// A table server is a process of its own, or a thread of a rank, which has joined as that.
void WorkerService::on_server(wire::WorkerHello hello) {
  const auto process = station_.course.find_number(hello.rank);
  const auto owner =
      process ? process : station_.course.find_number(hello.rank - wire::kFirstServer);
  if (!owner) return;
  if (!hello.descriptors.empty())
    station_.ranks[*owner].set_tables(std::move(hello.descriptors[0]));
  if (process) station_.course.on_join(*process);
}

/// It concerns the ranks of other hosts, if there are any.
void WorkerService::on_put(const std::string& key, const Bytes& value) {
  if (surveyor_.has_surveyed()) station_.course.on_put({.key = key, .value = value});
}

void WorkerService::on_ready(const wire::WorkerReady& ready) {
  const ReadyForEpoch body{.epoch = ready.epoch, .steps = ready.steps, .lost = ready.lost};
  for (const size_t rank : ranks_of(ready.member)) station_.course.on_ready(rank, body);
}

void WorkerService::on_leave(const std::string& member) {
  for (const size_t rank : ranks_of(member)) station_.course.on_leave(rank);
}

void WorkerService::on_notice(const wire::WorkerNotice& heard) {
  for (const size_t rank : ranks_of(heard.member))
    station_.course.on_notice(rank, heard.notice, monotonic_now());
}

std::string WorkerService::member_of(size_t rank) const {
  return wire::to_hex(station_.course.about(rank).member);
}

std::vector<size_t> WorkerService::ranks_of(const std::string& member) const {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < station_.course.size(); ++rank)
    if (member_of(rank) == member) ranks.push_back(rank);
  return ranks;
}

// -- what engines are told ------------------------------------------------------------------------

void WorkerService::carry_out(const PrepareWorker& order) {
  service_->prepare(member_of(order.rank), order.epoch, order.how.at_once, order.how.why);
}

void WorkerService::carry_out(const StartEpoch& order) {
  if (service_ != nullptr) service_->start_epoch(order.size);
}

void WorkerService::carry_out(const CommitWorker& order) {
  service_->commit(member_of(order.rank), order.epoch, order.number, order.last);
}

void WorkerService::carry_out(const Supply& order) {
  service_->supply(order.record.key, order.record.value);
}

void WorkerService::carry_out(const EndRank& order) {
  if (service_ != nullptr) service_->end_rank(order.number, order.host);
}

void WorkerService::carry_out(const EndEpochs& /*order*/) {
  if (service_ != nullptr) service_->end_epochs();
}

}  // namespace corro::agent
