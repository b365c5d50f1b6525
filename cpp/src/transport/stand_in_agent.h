// StandInAgent: the rank that takes the agent's place where ranks were started by others, on a
// thread of its own: a store for the bootstrap.
//
//   ranks of its host    packets over an abstract Unix socket, whose peer the kernel vouches for
//   ranks of others      TCP, after the handshake under the job's secret, for the purpose
//                        wire::Purpose::kBootstrap
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/event.h"
#include "transport/mesh_admission.h"
#include "wire/agent_service.h"

namespace corro::transport {

/// The rank, in handshakes, of whoever takes the agent's place.
inline constexpr int32_t kStandInRank = -1;
/// The key of the address at which ranks of other hosts have reached the host; numeric.
inline constexpr std::string_view kReachedKey = "corro/reached";

/// Thread-safe.
class StandInAgent {
 public:
  struct Options {
    std::string job;
    wire::Secret secret{};
    int32_t size = 1;
    std::string name;             ///< The abstract Unix socket's.
    std::vector<uint16_t> ports;  ///< The first free one is taken; empty: ranks of this host only.
  };
  /// Listens, and starts the thread. ALREADY_EXISTS if somebody has the name.
  static Result<std::unique_ptr<StandInAgent>> start(const Options& options);
  /// Serves on until all who have come have left, but no longer than a few seconds. (Where all
  /// ranks have come and left, it has ended by itself.)
  ~StandInAgent();
  /// In a forked child: closes every descriptor without a word. Nothing else may be called after
  /// it.
  void abandon_in_child();
  StandInAgent(const StandInAgent&) = delete;
  StandInAgent& operator=(const StandInAgent&) = delete;

 private:
  StandInAgent(const Options& options, std::unique_ptr<wire::AgentService> service, io::Epoll epoll,
               io::EventFd wake, io::Fd listener);
  void run();
  void handle(uint64_t event);
  void welcome();
  [[nodiscard]] bool all_have_left() const;

  const MeshOptions options_;
  Doors doors_;
  std::unique_ptr<wire::AgentService> service_;
  io::Epoll epoll_;
  io::EventFd wake_;
  Admission admission_;
  bool reached_ = false;  ///< By a rank of another host.
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace corro::transport
