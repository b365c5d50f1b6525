// Reading a recorder from outside: the descriptor and the memory are foreign, so every value is
// checked.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <string>

#include "obs/flight_layout.h"
#include "obs/flight_recorder.h"

namespace corro::obs {
namespace {

/// Read-only view of a whole memfd for the time of one read.
class Mapping {
 public:
  Mapping(int fd, size_t bytes)
      : memory_(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0)), bytes_(bytes) {}
  ~Mapping() {
    if (ok()) munmap(memory_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] bool ok() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] const std::byte* data() const { return static_cast<const std::byte*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

Status refuse(const std::string& why) { return {Code::kDataLoss, "flight recorder: " + why}; }

/// The size of the memory behind fd, if it can be mapped without the danger that its owner cuts it
/// off (SIGBUS).
Result<size_t> checked_size(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return status_from_errno("flight recorder: fstat", errno);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return refuse("not a memfd sealed against shrinking");
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < flight_bytes(1)) return refuse(fmt::format("{} bytes are too few", bytes));
  if (bytes > flight_bytes(kMaxFlightCapacity))
    return refuse(fmt::format("{} bytes are too many", bytes));
  return bytes;
}

bool is_flight_link(const std::string& link) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return false;
  const std::string_view text(target.data(), static_cast<size_t>(length));
  return text.starts_with(std::string("/memfd:") + kFlightMemfdName);
}

/// Reads the memory behind fd by `read`, once all is known to be there.
template <typename What>
Result<What> read_checked(int fd, What (*read)(const std::byte*, uint32_t)) {
  CORRO_ASSIGN(const size_t bytes, checked_size(fd));
  const Mapping mapping(fd, bytes);
  if (!mapping.ok()) return status_from_errno("flight recorder: mmap", errno);
  const auto& header = *reinterpret_cast<const FlightHeader*>(mapping.data());
  const uint64_t magic = header.magic.load(std::memory_order_acquire);
  if (magic != kFlightMagic && magic << 8U >> 8U == kFlightKind)
    return refuse("another release of corro wrote it");
  if (magic != kFlightMagic) return refuse("memory has another format");
  const uint32_t capacity = header.capacity.load(std::memory_order_acquire);
  if (!std::has_single_bit(capacity) || capacity > kMaxFlightCapacity ||
      flight_bytes(capacity) > bytes) {
    return refuse(fmt::format("a capacity of {} records does not fit {} bytes", capacity, bytes));
  }
  return read(mapping.data(), capacity);
}

}  // namespace

Result<ProcessSnapshot> read_flight(int fd) { return read_checked(fd, read_memory); }

Result<ProcessTrace> trace_flight(int fd, uint32_t steps) {
  CORRO_ASSIGN(ProcessTrace trace, read_checked(fd, trace_memory));
  std::erase_if(trace.operations, [&](const TracedOp& one) {
    return one.op.done_ns != 0 && one.step + steps < trace.step;
  });
  return trace;
}

Result<ProcessSnapshot> read_flight_of(int pid) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(folder, error);
  if (error) return status_from_errno(fmt::format("process {}: {}", pid, folder), error.value());
  Status failure(
      Code::kNotFound,
      fmt::format("process {} has no flight recorder: it has not called corro.init()", pid));
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!is_flight_link(entry->path())) continue;
    const int fd = open(entry->path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      failure =
          status_from_errno(fmt::format("process {}: opening its flight recorder", pid), errno);
      continue;
    }
    auto snapshot = read_flight(fd);
    close(fd);
    if (snapshot.ok()) return snapshot;
    failure = snapshot.status().with_context(fmt::format("process {}", pid));
  }
  return failure;
}

}  // namespace corro::obs
