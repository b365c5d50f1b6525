// Meeting: where ranks that mpirun has started in this pod meet those of the other pods.
//
//   Meeting meeting(uid, loop, [&](const agent::Record& one) { head.send(one); });
//   meeting.open(secret);    // the head's first word; a new head is told all that it has to know
//   meeting.supply(record);  // what ranks of other pods have put
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "io/loop.h"
#include "wire/agent_service.h"

namespace corro::pod {

/// Loop-confined. `loop` outlives it.
class Meeting {
 public:
  using Say = std::function<void(const agent::Record&)>;
  Meeting(std::string job_uid, io::Loop& loop, Say say)
      : job_uid_(std::move(job_uid)), loop_(loop), say_(std::move(say)) {}

  void open(const wire::Secret& secret);
  void supply(const agent::Record& record);
  /// Closes the own descriptors alone: to be called in a child that this process has forked.
  void forget() { service_.reset(); }

 private:
  void poll();

  std::string job_uid_;
  io::Loop& loop_;
  Say say_;
  std::unique_ptr<wire::AgentService> service_;
  std::vector<agent::Record> own_;  ///< Of ranks of this pod.
};

}  // namespace corro::pod
