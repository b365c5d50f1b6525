#include "api/fork_guard.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"

namespace corro::api {
namespace {

/// pthread_atfork takes no argument, so this list has to be global. Held across fork() so that the
/// child sees it whole.
struct Registry {
  std::mutex mutex;
  std::vector<const runtime::Joined*> joined;
  std::vector<std::weak_ptr<collective::Segment>> segments;
  std::vector<std::shared_ptr<collective::Segment>> held;  ///< During a fork.
  /// In a child: never let go, since the books of its parent's memory are lost.
  std::vector<std::shared_ptr<collective::Segment>> of_parent;
};

Registry& registry();

// Locked before fork() and unlocked after it, in other functions: nothing that can be analysed.
void before_fork() CORRO_NO_THREAD_ANALYSIS {
  Registry& all = registry();
  all.mutex.lock();
  for (const auto& segment : all.segments)
    if (auto held = segment.lock()) all.held.push_back(std::move(held));
  for (const auto& segment : all.held) segment->before_fork();
}
void after_fork_in_parent() CORRO_NO_THREAD_ANALYSIS {
  Registry& all = registry();
  for (const auto& segment : all.held) segment->after_fork_in_parent();
  const auto let_go = std::exchange(all.held, {});  // Maybe the last owners, so without the lock.
  all.mutex.unlock();
}
void after_fork_in_child() CORRO_NO_THREAD_ANALYSIS {
  Registry& all = registry();
  for (const auto& segment : all.held) segment->after_fork_in_child();  // Needs its descriptor.
  for (const runtime::Joined* joined : all.joined) joined->abandon_in_child();
  all.joined.clear();
  all.segments.clear();
  for (auto& segment : std::exchange(all.held, {})) all.of_parent.push_back(std::move(segment));
  all.mutex.unlock();
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
  auto& segments = registry().segments;
  std::erase_if(segments, [](const auto& segment) { return segment.expired(); });
  segments.push_back(joined.driver->engine().segment());
}

ForkGuard::~ForkGuard() {
  const std::scoped_lock lock(registry().mutex);
  std::erase(registry().joined, &joined_);
}

}  // namespace corro::api
