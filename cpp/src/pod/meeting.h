// Meeting: where ranks that mpirun has started in this pod meet those of the other pods.
//
//   Meeting meeting(uid, epoll, kMeeting, [&](const agent::Record& record) { link.send(record); });
//   meeting.open(secret);    // the head's first word; a new head is told all that it has to know
//   meeting.supply(record);  // what ranks of other pods have put
//   ... on kMeeting: meeting.poll();
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "io/event.h"
#include "wire/agent_service.h"

namespace corro::pod {

/// Loop-confined. `epoll` outlives it.
class Meeting {
 public:
  using Say = std::function<void(const agent::Record&)>;
  Meeting(std::string job_uid, io::Epoll& epoll, uint64_t key, Say say)
      : job_uid_(std::move(job_uid)), epoll_(epoll), key_(key), say_(std::move(say)) {}

  void open(const wire::Secret& secret);
  void supply(const agent::Record& record);
  void poll();
  /// Closes the own descriptors alone: to be called in a child that this process has forked.
  void forget() { service_.reset(); }

 private:
  std::string job_uid_;
  io::Epoll& epoll_;
  uint64_t key_;
  Say say_;
  std::unique_ptr<wire::AgentService> service_;
  std::vector<agent::Record> own_;  ///< Of ranks of this pod.
};

}  // namespace corro::pod
