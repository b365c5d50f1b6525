#include "api/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace corro::api {
namespace {

/// pthread_atfork takes no argument, so this list has to be global. Held across fork() so that the
/// child sees it whole.
struct Registry {
  std::mutex mutex;
  std::vector<runtime::Driver*> drivers;
};

Registry& registry() {
  static Registry* const kInstance = [] {
    auto* made = new Registry;  // never destroyed: a fork may happen while the process exits
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     for (runtime::Driver* driver : registry().drivers) driver->abandon_in_child();
                     registry().drivers.clear();
                     registry().mutex.unlock();
                   });
    return made;
  }();
  return *kInstance;
}

}  // namespace

ForkGuard::ForkGuard(runtime::Driver& driver) : driver_(driver) {
  const std::scoped_lock lock(registry().mutex);
  registry().drivers.push_back(&driver);
}

ForkGuard::~ForkGuard() {
  const std::scoped_lock lock(registry().mutex);
  std::erase(registry().drivers, &driver_);
}

}  // namespace corro::api
