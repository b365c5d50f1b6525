// SpeedServer with any bytes on one connection, behind the key or without it: it lives on, and a
// caller that behaves is answered.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>

#include "agent/speed_test.h"
#include "base/check.h"
#include "io/socket.h"

namespace {

using namespace corro;         // NOLINT(google-build-using-namespace): one program
using namespace corro::agent;  // NOLINT(google-build-using-namespace)

/// A caller's end of a connection to the server.
io::Fd call(SpeedServer& server) {
  int ends[2];
  CORRO_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  server.add(io::Fd(ends[0]));
  return io::Fd(ends[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const SpeedKey key{};
  auto server = SpeedServer::create(key).value();
  const io::Fd stranger = call(*server);
  auto rest = std::as_bytes(std::span(data, size));
  if (!rest.empty() && (std::to_integer<int>(rest[0]) & 1) != 0)
    (void)io::send_some(stranger.get(), key);
  while (!rest.empty()) {
    const auto piece = rest.first(std::min<size_t>(rest.size(), 7));
    rest = rest.subspan(piece.size());
    if (!io::send_some(stranger.get(), piece).ok()) break;
    server->poll();
  }
  const io::Fd caller = call(*server);
  const std::byte ping{'p'};
  CORRO_CHECK(io::send_some(caller.get(), key).ok() &&
              io::send_some(caller.get(), {&ping, 1}).ok());
  server->poll();
  std::array<std::byte, 4> pong{};
  CORRO_CHECK(io::receive_message(caller.get(), pong).bytes == 1);
  return 0;
}
