#include "checkpoint/image.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace corro::checkpoint {

Status Image::resize(uint64_t bytes) {
  size_ = 0;
  if (bytes > memory_.size()) {
    memory_.reset();
    void* const data =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return status_from_errno(fmt::format("{} MiB of memory for a copy", bytes >> 20U), errno);
    (void)madvise(data, bytes, MADV_HUGEPAGE);  // Clearing is faster; without it all works, too.
    memory_ = io::Mapping(static_cast<std::byte*>(data), bytes);
  }
  size_ = bytes;
  return {};
}

}  // namespace corro::checkpoint
