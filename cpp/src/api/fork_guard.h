// Fork guard: closes the engines' descriptors in forked children. A data loader that inherited a
// connection would keep it open after its parent died, and the peers would wait for ever.
#pragma once

#include "runtime/join.h"

namespace corro::api {

/// While it lives, a fork() abandons what joined the job in the child. Thread-safe.
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
