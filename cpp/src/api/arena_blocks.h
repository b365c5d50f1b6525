// Arena memory that callers hold: it keeps its segment mapped, also after the engine is gone.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "collective/board/segment.h"

namespace corro::api {

/// Takes memory from the segment's heap. Thread-safe.
Result<void*> allocate_arena(const std::shared_ptr<collective::Segment>& segment, size_t bytes);
/// Keeps a block of arena memory until free_arena() is called with it, once for each call of this.
/// Thread-safe.
void keep_arena(const std::shared_ptr<std::byte>& memory);
/// Gives it back; nothing for null, for what was not allocated here, and in a forked child, whose
/// copy of the books may have been caught in the middle. Thread-safe.
void free_arena(void* memory);

}  // namespace corro::api
