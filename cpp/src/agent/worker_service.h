// WorkerService: what the agent and the engines of its ranks tell each other, at a socket of the
// host (wire/agent_service.h). Engines say to the course that they join, are ready for an epoch, or
// leave, what people are to know, and what they put into the bootstrap; the course orders what they
// are told.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/station.h"
#include "agent/surveyor.h"
#include "wire/agent_service.h"

namespace corro::agent {

/// Loop-confined.
class WorkerService {
 public:
  /// `on_said` is called when the course has heard of engines: it may have orders.
  WorkerService(Station& station, Surveyor& surveyor, std::function<void()> on_said)
      : station_(station), surveyor_(surveyor), on_said_(std::move(on_said)) {}
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  /// A rank is about to start: opens the socket that START names, unless one is open.
  Status open(const Start& start);
  [[nodiscard]] bool is_open() const { return service_ != nullptr; }
  /// Of the socket.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Whether this rank of the epoch has ever joined. It has to be open.
  [[nodiscard]] bool greeted(int32_t number) const { return service_->greeted(number); }

  void carry_out(const PrepareWorker& order);
  void carry_out(const StartEpoch& order);
  void carry_out(const CommitWorker& order);
  void carry_out(const Supply& order);
  void carry_out(const EndRank& order);
  void carry_out(const EndEpochs& order);

 private:
  void poll();
  void on_hello(wire::WorkerHello hello);
  void on_server(wire::WorkerHello hello);
  void on_put(const std::string& key, const Bytes& value);
  void on_ready(const wire::WorkerReady& ready);
  void on_leave(const std::string& member);
  void on_notice(const wire::WorkerNotice& heard);
  [[nodiscard]] std::string member_of(size_t rank) const;
  [[nodiscard]] std::vector<size_t> ranks_of(const std::string& member) const;

  Station& station_;
  Surveyor& surveyor_;
  std::function<void()> on_said_;
  std::unique_ptr<wire::AgentService> service_;  ///< From the first START on.
  std::string name_;
};

}  // namespace corro::agent
