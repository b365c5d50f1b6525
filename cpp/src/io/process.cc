#include "io/process.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

namespace corro::io {

Result<Fd> open_pidfd(pid_t pid) {
  const long fd = syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0) return Fd(static_cast<int>(fd));
  if (errno == ESRCH)
    return Status(Code::kNotFound, fmt::format("process {}: no such process", pid));
  return status_from_errno(fmt::format("pidfd_open of process {}", pid), errno);
}

namespace {

/// Returns "pid:[4026531836]", or the name alone where /proc does not tell.
std::string namespace_id(const char* name) {
  std::array<char, 64> target{};
  const std::string path = fmt::format("/proc/self/ns/{}", name);
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : std::string(name);
}

/// Returns what changes with every boot of the kernel; the host's name where /proc does not tell.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (file >> id) return id;
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

std::string boot_host_id() {
  return fmt::format("{}/{}/{}/{}", boot_id(), namespace_id("pid"), namespace_id("ipc"),
                     namespace_id("net"));
}

Status read_process(pid_t pid, uint64_t address, std::byte* into, size_t bytes) {
  while (bytes > 0) {
    iovec here{into, bytes};
    iovec there{reinterpret_cast<void*>(address), bytes};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t moved = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      const int error = moved == 0 ? EFAULT : errno;
      const Code code = error == ESRCH   ? Code::kNotFound
                        : error == EPERM ? Code::kPermissionDenied
                                         : Code::kInvalidArgument;
      return {code, fmt::format("reading the memory of process {}: {}", pid, strerror(error))};
    }
    into += moved;  // it may stop early, at the end of a mapping
    address += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
  return {};
}

bool vm_access_permitted(pid_t pid) {
  char byte = 0;
  iovec local{&byte, 1};
  // Nobody has page zero mapped: with permission the answer is EFAULT, without it EPERM.
  iovec remote{reinterpret_cast<void*>(1), 1};  // NOLINT(performance-no-int-to-ptr)
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno == EFAULT;
}

}  // namespace corro::io
