// Other processes: watching them, and what is shared with them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "io/fd.h"

namespace corro::io {

/// Opens a descriptor that becomes readable when the process ends. NOT_FOUND if there is no such
/// process (a zombie counts as ended: its descriptor is readable at once). The pid may have been
/// reused before this call: open it while something else (a connection, being the parent) proves
/// that the process lives.
[[nodiscard]] Result<Fd> open_pidfd(pid_t pid);

/// Names the host as far as memory and pids can be shared: the boot id and the pid, ipc and network
/// namespaces. Two containers on one machine differ; two processes side by side agree.
[[nodiscard]] std::string boot_host_id();

/// True if this process may read the other's memory with process_vm_readv. Reads nothing.
[[nodiscard]] bool vm_access_permitted(pid_t pid);

/// Copies `bytes` of another process's memory at `address`. NOT_FOUND if the process has ended;
/// PERMISSION_DENIED; INVALID_ARGUMENT where it has no such memory. Part of the bytes may have been
/// copied then.
[[nodiscard]] Status read_process(pid_t pid, uint64_t address, std::byte* into, size_t bytes);

}  // namespace corro::io
