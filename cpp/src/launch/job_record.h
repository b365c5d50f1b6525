// JobRecord: what a standalone coordinator keeps of its job, for the one that comes after it
// (docs/design/0030-coordinator.md). It is written before the members of an epoch are told that it
// begins, and nothing else of it is: what has happened since then, the agents know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/messages.h"
#include "base/status.h"

namespace corro::launch {

/// How a job has ended.
struct Ending {
  int status = 0;         ///< Its exit status.
  bool by_hosts = false;  ///< Too few hosts were left: no rank has failed by itself.
  std::string why =
      {};  ///< For people, in a line: "ValueError: ... (rank 0 on node1)"; "": no more.
  bool operator==(const Ending&) const = default;
};

struct JobRecord {
  struct Host {
    std::string name;
    int slots = 0;
    std::string address = {};  ///< By which the others reach it.
    std::string id = {};       ///< As JobHost has it.
    bool gone = false;         ///< Nothing is there any more.
    bool operator==(const Host&) const = default;
  };
  struct Member {
    agent::MemberUuid uuid{};
    uint32_t incarnation = 1;
    size_t place = 0;  ///< As Epochs has it.
    size_t host = 0;   ///< Its number.
    int slot = 0;      ///< Of the host.
    bool operator==(const Member&) const = default;
  };

  std::string job;     ///< Its id.
  int ranks = 0;       ///< That it has begun with.
  uint32_t epoch = 0;  ///< The last one that has begun.
  uint64_t steps = 0;  ///< That its members have applied, as it began.
  int resets = 0;      ///< Epochs before it.
  bool last = false;   ///< Its members save what they have, and end.
  std::vector<Host> hosts;
  std::vector<Member> members;        ///< By rank; none: no epoch has begun yet.
  bool over = false;                  ///< The job has ended...
  std::optional<Ending> ending = {};  ///< ...so, if its coordinator came to say it.
  bool operator==(const JobRecord&) const = default;
};

/// JSON in one line.
[[nodiscard]] std::string format_record(const JobRecord& record);
/// DATA_LOSS, with what is wrong, unless it is a record of which all can be used: members are on
/// hosts that it has, each in a slot and a place of its own.
[[nodiscard]] Result<JobRecord> parse_record(std::string_view text);

}  // namespace corro::launch
