// Station: what the parts of an agent share: who commands it, its loop, its course, and its ranks.
//
// The agent (agent.cc) owns the station and all parts. A part refers to the station, and to the
// parts that it needs: those are made before it, and outlive it.
#pragma once

#include <signal.h>

#include <functional>
#include <utility>

#include "agent/agent_course.h"
#include "agent/commander.h"
#include "agent/rank_group.h"
#include "io/interfaces.h"
#include "io/loop.h"

namespace corro::agent {

/// Loop-confined.
struct Station {
  /// `far`: the commander is on another host. `worker_mask`: the ranks' signal mask.
  Station(Commander who, io::Loop turning, bool far, const sigset_t& worker_mask,
          RankGroup::Printed printed)
      : commander(std::move(who)),
        loop(std::move(turning)),
        course(commander.dialling() ? commander.dialling()->host : io::host_name(), far,
               monotonic_now()),
        ranks(worker_mask, loop, std::move(printed)) {}
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  /// To the commander: about this host.
  void say(MessageBody body) { commander.send({course.here(), std::move(body)}); }
  /// To the commander: about a rank.
  void say(size_t rank, MessageBody body) { commander.send({course.about(rank), std::move(body)}); }
  /// say() for who knows no rank.
  [[nodiscard]] std::function<void(MessageBody)> voice() {
    return [this](MessageBody body) { say(std::move(body)); };
  }

  Commander commander;
  io::Loop loop;
  AgentCourse course;
  RankGroup ranks;  ///< By the numbers that the course has for them.
};

}  // namespace corro::agent
