// AgentBootstrap: a worker's connection to the agent on its host, or to the rank that takes the
// agent's place where no agent is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "io/fd.h"
#include "wire/agent_protocol.h"
#include "wire/bootstrap.h"

namespace corro::wire {

/// A connection to the agent that listens at this abstract name. PERMISSION_DENIED if another user
/// does, UNAVAILABLE if nobody does.
[[nodiscard]] Result<io::Fd> connect_to_agent(const std::string& name);

/// Externally synchronized. The connection stays open as long as the object lives.
class AgentBootstrap final : public Bootstrap {
 public:
  struct Options {
    std::string name;  ///< CORRO_AGENT.
    int32_t rank = 0;
    std::span<const int> descriptors =
        {};  ///< Passed to the agent with the HELLO; borrowed during connect().
    Time deadline;
  };
  /// connect_to_agent(), and says HELLO.
  static Result<std::unique_ptr<AgentBootstrap>> connect(const Options& options);

  /// Says HELLO over a TCP connection on which both sides have proven that they know `secret`.
  static Result<std::unique_ptr<AgentBootstrap>> greet_over(io::Fd connection, int32_t rank,
                                                            const Secret& secret, Time deadline);

  [[nodiscard]] Status put(std::string_view key, BytesView value) override;
  [[nodiscard]] Result<Bytes> get(std::string_view key, Time deadline) override;
  [[nodiscard]] std::optional<Secret> secret() const override { return secret_; }
  void abandon_in_child() override { fd_.reset(); }
  /// The job's name as the agent states it.
  [[nodiscard]] const std::string& job() const { return job_; }

 private:
  AgentBootstrap(io::Fd fd, std::string name, bool stream)
      : fd_(std::move(fd)), name_(std::move(name)), stream_(stream) {}
  Status greet(const Options& options);
  Status send_stream(BytesView packet, Time deadline);
  /// The next packet of the stream, once all of it is here.
  Result<std::optional<AgentMessage>> take_arrived();
  Result<std::optional<AgentMessage>> receive_now();
  Status send(const AgentMessage& message, std::span<const int> descriptors, Time deadline);
  Result<AgentMessage> receive(Time deadline);
  Result<uint32_t> request(AgentMessage message, Time deadline);
  /// Waits for the reply to a request. Replies to others that were given up are kept.
  Result<Bytes> reply_to(uint32_t request, Time deadline);

  io::Fd fd_;
  std::string name_;  ///< For messages.
  bool stream_;       ///< TCP, which keeps no packets apart.
  Bytes arrived_;
  std::string job_;
  Secret secret_{};
  uint32_t next_request_ = 1;
  /// Keys that were asked for and given up: who asks again waits for the same reply.
  std::map<std::string, uint32_t, std::less<>> asked_;
  std::map<uint32_t, AgentMessage> replies_;  ///< To these.
};

}  // namespace corro::wire
