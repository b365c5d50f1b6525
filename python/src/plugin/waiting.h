// Waiting: who is told, on one thread of the plug-in, that works are over.
//
// A framework calls its plug-ins on few threads of its own, which must not wait. So they start their
// operations and return; one thread of the plug-in waits for all of them on a queue of its own. It is
// never an engine's thread: what is told may start operations.
#pragma once

#include <memory>

#include "corro/corro.h"

namespace corro::plugin {

/// Externally synchronized: nobody has it while it waits.
class Waiting {
 public:
  Waiting() = default;
  virtual ~Waiting() = default;
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// The work is over, and released; `error` says how if the code is not CORRO_OK.
  virtual void over(corro_code code, const corro_error& error) = 0;
};

/// Calls over() once the work is, on the thread, and deletes it then.
void wait_on_thread(std::unique_ptr<Waiting> waiting, corro_work* work);
/// Blocks until the work is over, and calls over().
void wait_here(Waiting& waiting, corro_work* work);

}  // namespace corro::plugin
