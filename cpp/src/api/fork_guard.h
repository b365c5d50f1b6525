// Fork guard: closes the engines' descriptors in forked children. A data loader that inherited a
// connection would keep it open after its parent died, and the peers would wait for ever.
#pragma once

#include "runtime/driver.h"

namespace corro::api {

/// While it lives, a fork() abandons the driver in the child. Thread-safe.
class ForkGuard {
 public:
  explicit ForkGuard(runtime::Driver& driver);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  runtime::Driver& driver_;
};

}  // namespace corro::api
