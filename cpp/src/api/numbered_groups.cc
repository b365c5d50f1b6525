#include "api/numbered_groups.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "api/handles.h"
#include "base/thread_annotations.h"

namespace corro::api {
namespace {

struct Numbered {
  std::optional<int32_t> number;  ///< None once another group has it: this one may still be held.
  corro_group* group;
  uint32_t holders = 0;
};

/// Global, since who looks for a group has nothing of the engine yet.
struct Book {
  std::mutex mutex;
  std::condition_variable let_go;
  std::vector<Numbered> groups;
};

Book& book();

// Locked before fork() and unlocked after it, so that a child finds it whole: whoever finds a group
// there is told that the engine is its parent's.
void lock_book() CORRO_NO_THREAD_ANALYSIS { book().mutex.lock(); }
void unlock_book() CORRO_NO_THREAD_ANALYSIS { book().mutex.unlock(); }

Book& book() {
  static Book* const kInstance = [] {
    auto* made = new Book;  // never destroyed: other threads may look while the process exits
    pthread_atfork(lock_book, unlock_book, unlock_book);
    return made;
  }();
  return *kInstance;
}

template <typename Belongs>
void forget(const Belongs& belongs) {
  std::unique_lock lock(book().mutex);
  std::vector<Numbered>& groups = book().groups;
  book().let_go.wait(lock, [&] {
    return std::ranges::none_of(
        groups, [&](const Numbered& one) { return belongs(one) && one.holders > 0; });
  });
  std::erase_if(groups, belongs);
}

}  // namespace

Status number_group(corro_group* group, int32_t number) {
  CORRO_TRY(check_group(group));
  const std::scoped_lock lock(book().mutex);
  for (Numbered& one : book().groups)
    if (one.number == number) one.number.reset();
  book().groups.push_back({number, group});
  return {};
}

Result<corro_group*> find_group(int32_t number) {
  const std::scoped_lock lock(book().mutex);
  const auto found = std::ranges::find(book().groups, number, &Numbered::number);
  if (found == book().groups.end()) {
    return Status(Code::kFailedPrecondition,
                  book().groups.empty()
                      ? "corro is not initialized: call corro.init() first"
                      : fmt::format("this rank is in no group of the number {}", number));
  }
  CORRO_TRY(check_group(found->group));
  ++found->holders;
  return found->group;
}

void let_go(corro_group* group) {
  const std::scoped_lock lock(book().mutex);
  const auto held = std::ranges::find_if(
      book().groups, [&](const Numbered& one) { return one.group == group && one.holders > 0; });
  if (held == book().groups.end() || --held->holders > 0) return;
  book().let_go.notify_all();
}

void forget_numbers(const corro_group* group) {
  forget([&](const Numbered& one) { return one.group == group; });
}

void forget_numbers(const corro_engine* engine) {
  forget([&](const Numbered& one) { return one.group->engine == engine; });
}

}  // namespace corro::api
