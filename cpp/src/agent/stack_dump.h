// The Python stacks of ranks, asked for while they run: through py-spy where it is installed, else
// through faulthandler as whereabouts.h says.
//
//   StackDumps dumps(mask);
//   dumps.ask(rank.about(), rank.python(), "/venv/bin", now);
//   ... a few milliseconds later, again and again:
//   dumps.poll(now, [&](const Subject& about, Stack stack) { say(about, stack); });
#pragma once

#include <signal.h>

#include <functional>
#include <list>
#include <optional>
#include <string>

#include "agent/messages.h"
#include "agent/whereabouts.h"
#include "agent/worker.h"
#include "base/clock.h"

namespace corro::agent {

/// A rank has so long to answer, and so has py-spy before it.
inline constexpr Duration kStackPatience = std::chrono::seconds(2);

/// Loop-confined. py-spy is a child of this process: who reaps children reaps it.
class StackDumps {
 public:
  /// `mask`: py-spy's signal mask.
  explicit StackDumps(const sigset_t& mask) : mask_(mask) {}

  /// Asks a rank, unless it is being asked already. `pid`: its process, or one above it; py-spy is
  /// looked for in `folder` and on PATH.
  void ask(const Subject& about, pid_t pid, const std::string& folder, Time now);
  /// Tells each answer, or why there is none, once.
  void poll(Time now, const std::function<void(const Subject&, Stack)>& tell);
  [[nodiscard]] bool empty() const { return dumps_.empty(); }

 private:
  struct Dump {
    Subject about;
    pid_t pid = 0;
    std::optional<Worker> spy = {};  ///< While it runs.
    std::string printed = {};        ///< By py-spy.
    Whereabouts asked = {};
    size_t seen = 0;  ///< Bytes of the answer when its size was looked at last.
    Time settled{};   ///< It is complete if it has not grown until then.
    Time until{};
  };
  void start_spy(Dump& dump, const std::string& program);
  static void ask_itself(Dump& dump, Time now);
  static std::optional<Stack> poll(Dump& dump, Time now);
  static std::optional<Stack> read_spy(Dump& dump, Time now);

  sigset_t mask_;
  std::list<Dump> dumps_;
};

}  // namespace corro::agent
