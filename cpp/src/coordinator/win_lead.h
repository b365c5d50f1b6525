// How a coordinator comes to lead: it asks the store of the job's record twice a second, until
// nobody else leads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "coord/record_store.h"

namespace corro::coordinator {

/// Whether the store is away, and may come back. `was_let_in`: a refusal (401 or 403 of an API
/// server) counts for that, too, since it was no mistake of the user's.
[[nodiscard]] bool is_away(const Status& status, bool was_let_in);

struct Candidate {
  std::string name;         ///< For people: "host1, process 4711".
  bool was_let_in = false;  ///< See is_away(); true anyway once the store has answered.
  std::function<void(const std::string& line)> say;  ///< Who leads, or why nobody can be asked.
  std::function<void()> pause;                       ///< Between two questions.
};

/// Waits until this one leads; each line is said once, as long as it is so. Returns the term, or why
/// the store cannot be used.
[[nodiscard]] Result<uint64_t> win_lead(coord::RecordStore& store, Candidate candidate);

}  // namespace corro::coordinator
