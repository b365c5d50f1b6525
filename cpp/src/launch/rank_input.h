// RankInput: what the user types, on its way to rank 0. The bytes come from UserInput, and go to the
// agent of that rank's host, which gives credit for what the rank has taken.
#pragma once

#include <cstdint>

#include "launch/job.h"
#include "launch/user_input.h"

namespace corro::launch {

/// Loop-confined. `job` outlives it.
class RankInput {
 public:
  explicit RankInput(Job& job) : job_(job) {}

  /// Rank 0 is being started, and cannot read the standard input itself.
  void start() {
    input_.start([this] { send(); });
  }
  /// Sends what is there. To be called in each turn where is_file(); else the loop calls it.
  void send();
  [[nodiscard]] bool is_file() const { return input_.is_file(); }
  /// The rank has taken so many bytes.
  void take(uint64_t bytes) { input_.take(bytes); }
  /// Looks again whether the terminal may be read: now and then.
  void look() { input_.look(); }

 private:
  Job& job_;
  UserInput input_{job_.loop};
};

}  // namespace corro::launch
