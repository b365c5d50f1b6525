// Branches: the agents that this one has started on other hosts, so that a launcher of many hosts
// need not start all by itself.
//
//   GROW starts a remote shell, as the launcher does
//   FORWARD's message goes to its branch; what a branch says goes to the commander in a FORWARD
//   CUT is said when a branch has ended, or could not be started
//
// A branch may have branches itself: a FORWARD then holds a FORWARD. This agent only passes on.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "agent/agent_process.h"

namespace corro::agent {

/// Loop-confined. `loop` outlives it.
class Branches {
 public:
  /// `say` is for the commander.
  Branches(const sigset_t& mask, io::Loop& loop, std::function<void(MessageBody)> say)
      : mask_(mask), loop_(loop), say_(std::move(say)) {}

  void hear(const Grow& grow);
  void hear(const Forward& forward);
  /// Branches need no other message.
  void hear(const auto& /*other*/) {}
  void flush();

  /// Takes the end of a process that may be a remote shell of these.
  void take_end(pid_t pid, int status);
  /// The remote shells that run.
  [[nodiscard]] std::set<pid_t> shells() const;
  /// None runs.
  [[nodiscard]] bool empty() const;

 private:
  struct Branch {
    int32_t host;
    AgentProcess process;
    bool cut = false;
  };
  void read(Branch& branch);
  void cut(Branch& branch, const std::string& why);

  sigset_t mask_;
  io::Loop& loop_;
  std::function<void(MessageBody)> say_;
  std::vector<std::unique_ptr<Branch>> branches_;
};

}  // namespace corro::agent
