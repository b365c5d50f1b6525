// The folder of `corro run --on kubernetes --sync`, in the head of its job. The user's program
// brings it by `corro receive` in the head's container; from there on it is as at home: the head
// brings it to the workers.
//
//   waiting    the head does nothing before the folder is there
//   receiving  `corro receive` says over its standard streams what is missing, as an agent does; it
//              touches a file, by which the head knows that something comes
//   there      a mark beside the logs says so; it is gone with the head's pod
//
// If nothing comes for twenty seconds, the head says so in its log. One that replaces another one of
// an elastic job waits no longer: the ranks, which have the folder, need somebody who leads. Without
// it, a worker that comes later gets no folder. Others wait: they have nothing to start.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "pod/settings.h"

namespace corro::pod {

/// For how long nothing has come. Pure but for what it remembers.
class Silence {
 public:
  explicit Silence(Time now) : since_(now) {}
  /// `sign`: changes whenever something comes.
  [[nodiscard]] bool is_long(Time now, int64_t sign);

 private:
  Time since_;
  int64_t sign_ = 0;
};

/// Blocks until the folder is there. True once it is; false after twenty seconds in which nothing
/// came, in an elastic job's head that replaces another. CANCELLED with `signal` set after SIGTERM or SIGINT.
[[nodiscard]] Result<bool> wait_for_folder(const PodSettings& settings, int& signal);

/// `corro receive`: takes the folder from standard input, and answers on standard output. Returns 0
/// once all of it is there, else 1, and says why on stderr.
[[nodiscard]] int receive_folder(const PodSettings& settings);

}  // namespace corro::pod
