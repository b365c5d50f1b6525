// ServerSearch: where the table servers of a job listen that were started after it began, by the
// agents' store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/socket.h"
#include "wire/agent_bootstrap.h"

namespace corro::table {

/// Externally synchronized.
class ServerSearch {
 public:
  /// `agent`: CORRO_AGENT.
  explicit ServerSearch(std::string agent) : agent_(std::move(agent)) {}

  /// As ServedOptions::find_server. Blocks for milliseconds.
  [[nodiscard]] Result<std::optional<io::SocketAddress>> find(uint32_t server);

 private:
  const std::string agent_;
  std::unique_ptr<wire::AgentBootstrap> connection_;  ///< Null until something is looked for.
};

}  // namespace corro::table
