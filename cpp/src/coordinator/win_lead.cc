#include "coordinator/win_lead.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace corro::coordinator {

bool is_away(const Status& status, bool was_let_in) {
  switch (status.code()) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return true;
    case Code::kPermissionDenied:
    case Code::kUnauthenticated:
      return was_let_in;
    default:
      return false;
  }
}

Result<uint64_t> win_lead(coord::RecordStore& store, Candidate candidate) {
  std::string said;
  while (true) {
    const auto term = store.try_lead(candidate.name);
    if (!term.ok() && !is_away(term.status(), candidate.was_let_in)) return term.status();
    if (term.ok() && *term) return **term;
    candidate.was_let_in |= term.ok();
    const auto leader = term.ok() ? store.leader() : Result<std::string>(std::string());
    const std::string line =
        !term.ok() ? term.status().message()
                   : fmt::format("{} leads; this one stands by",
                                 leader.ok() && !leader->empty() ? *leader : "another one");
    if (std::exchange(said, line) != line) candidate.say(line);
    candidate.pause();
  }
}

}  // namespace corro::coordinator
