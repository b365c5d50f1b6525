#include "api/arena_blocks.h"

#include <unistd.h>

#include <atomic>
#include <unordered_map>
#include <utility>

#include "base/guarded.h"

namespace corro::api {
namespace {

/// What one process holds. Never destroyed: static objects of the caller may free memory late.
struct Books {
  pid_t owner = ::getpid();
  Guarded<std::unordered_map<void*, std::shared_ptr<collective::Segment>>> blocks;
};

/// A forked child begins books of its own: those it inherited may be locked for ever.
Books& books() {
  static std::atomic<Books*> current{new Books};
  Books* found = current.load(std::memory_order_acquire);
  if (found->owner == ::getpid()) return *found;
  auto fresh = std::make_unique<Books>();
  if (current.compare_exchange_strong(found, fresh.get())) return *fresh.release();
  return *found;
}

}  // namespace

Result<void*> allocate_arena(const std::shared_ptr<collective::Segment>& segment, size_t bytes) {
  CORRO_ASSIGN(void* const memory, segment->allocate(bytes));
  books().blocks.lock()->emplace(memory, segment);
  return memory;
}

void free_arena(void* memory) {
  std::shared_ptr<collective::Segment>
      segment;  // Unmapped, if this was the last, without the lock.
  {
    auto blocks = books().blocks.lock();
    const auto found = blocks->find(memory);
    if (found == blocks->end()) return;
    segment = std::move(found->second);
    blocks->erase(found);
  }
  segment->free(static_cast<std::byte*>(memory));
}

}  // namespace corro::api
