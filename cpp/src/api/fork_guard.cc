#include "api/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"

namespace corro::api {
namespace {

/// pthread_atfork takes no argument, so this list has to be global. Held across fork() so that the
/// child sees it whole.
struct Registry {
  std::mutex mutex;
  std::vector<const runtime::Joined*> joined;
};

Registry& registry();

// Locked before fork() and unlocked after it, in other functions: nothing that can be analysed.
void before_fork() CORRO_THREAD_ATTRIBUTE(no_thread_safety_analysis) { registry().mutex.lock(); }
void after_fork_in_parent() CORRO_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  registry().mutex.unlock();
}
void after_fork_in_child() CORRO_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  for (const runtime::Joined* joined : registry().joined) joined->abandon_in_child();
  registry().joined.clear();
  registry().mutex.unlock();
}

Registry& registry() {
  static Registry* const kInstance = [] {
    auto* made = new Registry;  // never destroyed: a fork may happen while the process exits
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return *kInstance;
}

}  // namespace

ForkGuard::ForkGuard(const runtime::Joined& joined) : joined_(joined) {
  const std::scoped_lock lock(registry().mutex);
  registry().joined.push_back(&joined);
}

ForkGuard::~ForkGuard() {
  const std::scoped_lock lock(registry().mutex);
  std::erase(registry().joined, &joined_);
}

}  // namespace corro::api
