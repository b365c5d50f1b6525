// RankBootstrap: for ranks that others have started. One of them takes the agent's place; the
// others find it by a Unix socket whose name all know, or at addresses and ports that all know, by
// connecting and proving the job's secret.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/stand_in_agent.h"
#include "wire/agent_bootstrap.h"
#include "wire/bootstrap.h"

namespace corro::transport {

struct RankBootstrapOptions {
  std::string job;  ///< The same on all ranks, and on no other job's.
  int32_t rank = 0;
  int32_t size = 1;
  bool serves = false;             ///< This rank takes the agent's place.
  std::string name = {};           ///< Of the Unix socket; "": one that follows from the job.
  std::vector<std::string> hosts;  ///< Where that rank is; empty: all ranks are on one host.
  std::vector<uint16_t> ports;     ///< Of which it takes one.
  wire::Secret secret{};           ///< If there are several hosts.
  std::function<bool()> interrupted;
  Time deadline;
};

/// Externally synchronized.
class RankBootstrap final : public wire::Bootstrap {
 public:
  /// Blocks until the rank that takes the agent's place is found. NOT_FOUND if nobody knows its
  /// host, DEADLINE_EXCEEDED with what was tried, CANCELLED when interrupted.
  static Result<std::unique_ptr<RankBootstrap>> join(const RankBootstrapOptions& options);

  [[nodiscard]] Status put(std::string_view key, BytesView value) override {
    return client_->put(key, value);
  }
  [[nodiscard]] Result<Bytes> get(std::string_view key, Time deadline) override {
    return client_->get(key, deadline);
  }
  [[nodiscard]] std::optional<wire::Secret> secret() const override { return client_->secret(); }
  void set_interrupted(std::function<bool()> asked) override {
    client_->set_interrupted(std::move(asked));
  }
  void joined() override { client_.reset(); }
  void abandon_in_child() override {
    if (client_ != nullptr) client_->abandon_in_child();
    if (host_ != nullptr) host_->abandon_in_child();
  }
  /// The own address at which ranks of other hosts reach this one; "" if all are on one host.
  [[nodiscard]] const std::string& own_address() const { return own_address_; }

 private:
  RankBootstrap() = default;

  std::unique_ptr<StandInAgent> host_;  ///< If this rank takes the agent's place.
  std::unique_ptr<wire::AgentBootstrap> client_;
  std::string own_address_;
};

/// A connection to the rank that takes the agent's place.
struct FoundStandIn {
  std::unique_ptr<wire::AgentBootstrap> client;
  std::string own_address;  ///< Of this side, numeric; "" on the same host.
};
/// Looks for it until the deadline; fails as RankBootstrap::join().
[[nodiscard]] Result<FoundStandIn> find_stand_in(const RankBootstrapOptions& options);

/// Ports at which the ranks of a job may meet: below those that kernels give away. Pure.
[[nodiscard]] std::vector<uint16_t> bootstrap_ports(std::string_view job);

}  // namespace corro::transport
