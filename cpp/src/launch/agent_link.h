// AgentLink: one host's agent as the launcher sees it.
//
//   starting   its process, or the remote shell for it, was started; it has not said HELLO
//   meeting    in a job of several hosts: it surveys its host, and probes the ways to others
//   working    it runs ranks
//   fenced     it has said FENCED
//   gone       its process, the connection or the host is lost; it says and hears nothing more
#pragma once

#include <optional>
#include <string>

#include "io/event.h"
#include "launch/agent_process.h"

namespace corro::launch {

/// Loop-confined.
class AgentLink {
 public:
  /// `host`: its number in the job.
  AgentLink(size_t host, std::string name, AgentProcess process)
      : host_(host), name_(std::move(name)), process_(std::move(process)) {}

  [[nodiscard]] size_t host() const { return host_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool remote() const { return process_.errors.valid(); }
  [[nodiscard]] pid_t pid() const { return process_.pid; }
  [[nodiscard]] agent::MessagePipe& pipe() { return process_.pipe; }
  [[nodiscard]] const agent::MessagePipe& pipe() const { return process_.pipe; }
  [[nodiscard]] int errors() const { return process_.errors.get(); }

  /// Watches it under these keys.
  Status watch(io::Epoll& epoll, uint64_t key, uint64_t errors_key);
  /// Takes what the remote shell has written to stderr. False once it writes no more.
  bool read_errors();
  /// Why there is no agent, in one line: what the remote shell has said last.
  [[nodiscard]] std::string why(const std::string& corro) const;

  /// The end of its process; waits at most `patience`, then kills it. Returns it as from waitpid.
  int end(Duration patience);

  bool greeted = false;
  bool fenced = false;
  bool gone = false;
  Time heard = monotonic_now();  ///< When it said something last.
  uint64_t uncredited = 0;       ///< Bytes of output that it has had no credit for yet.
  std::optional<agent::Surveyed> survey;
  std::optional<std::vector<agent::Route>> routes;

 private:
  size_t host_;
  std::string name_;
  AgentProcess process_;
  std::string said_;  ///< The end of the remote shell's stderr.
};

}  // namespace corro::launch
