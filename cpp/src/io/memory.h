// Shared memory without names: sealed memfds, committed before they are touched so that a full
// machine or a cgroup limit is a Status with one line and never a SIGBUS or a visit of the
// out-of-memory killer.
//
//   CORRO_ASSIGN(Fd fd, create_memfd("corro-arena", 1 << 30));   // sparse: costs nothing yet
//   CORRO_ASSIGN(Mapping map, map_shared(fd.get(), 1 << 30));
//   CORRO_TRY(commit(fd.get(), 0, 2 << 20));                     // now 2 MiB may be touched
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/cgroup.h"
#include "io/fd.h"

namespace corro::io {

inline constexpr size_t kMib = size_t{1} << 20U;

/// Unmaps its range when it goes away. Move-only; externally synchronized.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] bool valid() const { return data_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  /// Unmaps now.
  void reset();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Creates anonymous shared memory of `size` bytes, sealed so that no holder can change its size (a
/// peer that shrank it would kill every other process that has it mapped). `name` shows in
/// /proc/<pid>/fd only. Allocates no memory.
[[nodiscard]] Result<Fd> create_memfd(const std::string& name, size_t size);

/// Returns the size of the memory behind a descriptor passed by a peer, after checking that it is a
/// memfd of ordinary pages that cannot shrink; PERMISSION_DENIED otherwise.
[[nodiscard]] Result<size_t> sealed_size(int fd);

/// Maps [0, size) readable and writable. Reserves no memory. The mapping outlives `fd`.
[[nodiscard]] Result<Mapping> map_shared(int fd, size_t size);

/// Puts private memory with the same contents in the place of whole pages of a shared mapping: what
/// other processes store there afterwards is not seen here, nor the other way round. Nobody else
/// may use the range meanwhile.
[[nodiscard]] Status make_private(std::byte* data, size_t length);

/// Puts a private view of [offset, offset + length) of `fd` in the place of a shared one at `data`:
/// what is stored there from now on is this process's alone. A page that this process has not
/// stored to shows what others store. Calls nothing but the kernel: for forked children.
[[nodiscard]] Status make_copy_on_write(int fd, size_t offset, std::byte* data, size_t length);

/// Allocates the pages of [offset, offset + length): afterwards touching them cannot fail.
/// RESOURCE_EXHAUSTED with the limit that is in the way (cgroup, machine). Pages that are there
/// already cost nothing but are counted as needed.
[[nodiscard]] Status commit(int fd, size_t offset, size_t length);

/// Gives the pages of the range back to the system; they read as zero afterwards. `fd` stays
/// usable.
[[nodiscard]] Status release_pages(int fd, size_t offset, size_t length);

/// A limit on memory and what of it is taken (reclaimable page cache left out).
struct MemoryLimit {
  std::string what;  ///< "cgroup limit /sys/fs/cgroup/job" or "memory of this machine".
  uint64_t limit = 0;
  uint64_t used = 0;
};

/// Where memory limits are looked up; tests point it at files of their own.
struct MemoryLimitPaths {
  CgroupPaths cgroup = {};
  std::string meminfo = "/proc/meminfo";
};

/// Returns the limit (cgroup v1 or v2 with every ancestor, or the machine) that leaves least room;
/// nullopt if nothing can be read.
[[nodiscard]] std::optional<MemoryLimit> tightest_memory_limit(const MemoryLimitPaths& paths = {});

/// RESOURCE_EXHAUSTED in one line if `bytes` more would pass the limit.
[[nodiscard]] Status check_memory_limit(const std::optional<MemoryLimit>& limit, uint64_t bytes);

}  // namespace corro::io
