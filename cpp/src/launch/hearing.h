// Hearing: what becomes of what agents say, and of their loss.
//
//   of a rank     output and its end go to the screen and the files, credit to the standard input;
//                 all else is the course's
//   of a server   the same, but that it has no input
//   of a host     the meeting hears it first, then the course. Of a host that comes while ranks run
//                 it goes to the host watch: whatever it is, the job goes on
//   of a loss     the host's ranks are lost; a host that comes is refused
//
// Nothing is heard any more once the lead is lost: the agents say it to another coordinator, too.
#pragma once

#include <string>

#include "launch/job.h"
#include "launch/job_orders.h"
#include "launch/leadership.h"
#include "launch/opening.h"
#include "launch/rank_input.h"

namespace corro::launch {

/// Loop-confined. All that it borrows outlives it.
class Hearing {
 public:
  Hearing(Job& job, const Leadership& leadership, JobOrders& orders, RankInput& input,
          Opening& opening)
      : job_(job), leadership_(leadership), orders_(orders), input_(input), opening_(opening) {}

  /// From now on the loop brings what agents say. Starts those of other hosts.
  [[nodiscard]] Status listen();
  /// The agent is gone, before it was fenced.
  void lose(const AgentLink& link, const std::string& why);
  /// A host was lost before ranks ran.
  [[nodiscard]] bool lost_early() const { return lost_early_; }

 private:
  void hear(AgentLink& link, const agent::Message& message);
  void hear_server(const AgentLink& link, size_t server, const agent::Message& message);
  void hear_host(AgentLink& link, const agent::Message& message);
  void note_host(AgentLink& link, const agent::Message& message);
  void on_survey(AgentLink& link);
  void greet(AgentLink& link, const agent::Hello& hello);
  void on_fenced(AgentLink& link, const agent::Fenced& fenced);
  void refuse_host(const AgentLink& link, const std::string& why);
  void note_takeover(const AgentLink& link, const AgentLink& by, const std::string& why);

  Job& job_;
  const Leadership& leadership_;
  JobOrders& orders_;
  RankInput& input_;
  Opening& opening_;
  bool lost_early_ = false;
};

}  // namespace corro::launch
