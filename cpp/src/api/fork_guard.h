// Fork guard: takes from forked children what is their parent's.
//
// It closes the engines' descriptors: a data loader that inherited a connection would keep it open
// after its parent died, and the peers would wait for ever. And it makes arena memory the child's
// own, also that of engines that are gone: it is mapped shared, so a child that changed a gradient
// would have changed its parent's.
#pragma once

#include "runtime/join.h"

namespace corro::api {

/// While it lives, a fork() abandons what joined the job in the child. The segment is looked after
/// as long as it is there. Thread-safe.
class ForkGuard {
 public:
  explicit ForkGuard(const runtime::Joined& joined);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  const runtime::Joined& joined_;
};

}  // namespace corro::api
