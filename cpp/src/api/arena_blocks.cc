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
  Guarded<std::unordered_multimap<void*, std::shared_ptr<std::byte>>> blocks;
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
  CORRO_ASSIGN(std::byte* const memory, segment->allocate(bytes));
  keep_arena({memory, [segment](std::byte* freed) { segment->free(freed); }});
  return memory;
}

void keep_arena(const std::shared_ptr<std::byte>& memory) {
  books().blocks.lock()->emplace(memory.get(), memory);
}

void free_arena(void* memory) {
  std::shared_ptr<std::byte> block;  // Freed, and its segment unmapped, without the lock.
  auto blocks = books().blocks.lock();
  const auto found = blocks->find(memory);
  if (found == blocks->end()) return;
  block = std::move(found->second);
  blocks->erase(found);
}

}  // namespace corro::api
