// AgentService with any sequence of packets on one connection, and the same as bytes on one of a
// rank of another host: it lives on, and a rank that behaves is served.
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "io/socket.h"
#include "wire/agent_protocol.h"
#include "wire/agent_service.h"

namespace {

using namespace corro;        // NOLINT(google-build-using-namespace): one program
using namespace corro::wire;  // NOLINT(google-build-using-namespace)

/// True if the agent answers a HELLO on a new connection.
bool serves(AgentService& service) {
  const io::Fd fd = io::connect_abstract(service.name()).value();
  const Bytes hello =
      encode_agent_message({.kind = AgentMessageKind::kHello, .rank = 0, .key = {}, .value = {}});
  if (!io::send_message(fd.get(), hello).value()) return false;
  for (int turn = 0; turn < 4; ++turn) CORRO_CHECK(service.poll().ok());
  std::array<std::byte, kMaxAgentMessage> answer{};
  return io::receive_message(fd.get(), answer).bytes > 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto service =
      AgentService::create({.job = "job", .size = 2, .name = {}, .on_hello = {}}).value();
  const io::Fd fd = io::connect_abstract(service->name()).value();
  std::array<int, 2> ends{};
  CORRO_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const io::Fd stream(ends[0]);
  CORRO_CHECK(service->adopt(io::Fd(ends[1]), 1).ok());
  auto rest = std::as_bytes(std::span(data, size));
  while (rest.size() > 1) {
    // Two bytes of length before each packet; a packet may be longer than the service reads.
    const size_t length = std::min<size_t>(
        rest.size() - 2, std::to_integer<size_t>(rest[0]) | std::to_integer<size_t>(rest[1]) << 8U);
    const auto packet = rest.subspan(2, length);
    rest = rest.subspan(2 + length);
    if (packet.empty()) continue;
    (void)io::send_some(stream.get(), packet);
    if (!io::send_message(fd.get(), packet).ok()) break;
    CORRO_CHECK(service->poll().ok());
  }
  CORRO_CHECK(serves(*service));
  return 0;
}
