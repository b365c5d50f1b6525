// Reading a recorder from outside: the descriptor and the memory are foreign, so every value is
// checked.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <string>

#include "obs/flight_layout.h"
#include "obs/flight_recorder.h"
#include "obs/sealed_memory.h"

namespace corro::obs {
namespace {

constexpr std::string_view kFlight = "flight recorder";

Status refuse(std::string_view why) {
  return {Code::kDataLoss, fmt::format("{}: {}", kFlight, why)};
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
  CORRO_ASSIGN(const SealedView view,
               SealedView::open(fd, flight_bytes(1), flight_bytes(kMaxFlightCapacity), kFlight));
  const auto& header = *reinterpret_cast<const FlightHeader*>(view.data());
  const uint64_t magic = header.magic.load(std::memory_order_acquire);
  if (magic != kFlightMagic && magic << 8U >> 8U == kFlightKind)
    return refuse("another release of corro wrote it");
  if (magic != kFlightMagic) return refuse("memory has another format");
  const uint32_t capacity = header.capacity.load(std::memory_order_acquire);
  if (!std::has_single_bit(capacity) || capacity > kMaxFlightCapacity ||
      flight_bytes(capacity) > view.size()) {
    return refuse(
        fmt::format("a capacity of {} records does not fit {} bytes", capacity, view.size()));
  }
  return read(view.data(), capacity);
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
