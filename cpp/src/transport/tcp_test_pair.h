// Two connected TcpStreams over loopback, for tests.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "io/socket.h"
#include "transport/tcp_stream.h"

namespace corro::transport {

struct TcpTestPair {
  std::unique_ptr<TcpStream> first;
  std::unique_ptr<TcpStream> second;
};

/// `buffer_bytes` > 0: size of the kernel's buffers, which it doubles.
inline TcpTestPair connect_tcp_pair(const std::string& host, int buffer_bytes = 0) {
  const auto any = io::SocketAddress::parse_host(host, 0).value();
  const io::Fd listener = io::listen_tcp(any).value();
  io::Fd client = io::connect_tcp(io::local_address(listener.get()).value()).value();
  const Time deadline = monotonic_now() + std::chrono::seconds(10);
  EXPECT_TRUE(io::wait_ready(listener.get(), POLLIN, deadline));
  io::Fd server = io::accept_connection(listener.get()).value();
  EXPECT_TRUE(io::wait_ready(client.get(), POLLOUT, deadline));
  EXPECT_TRUE(io::connect_result(client.get()).ok());
  EXPECT_TRUE(io::configure_tcp(server.get()).ok());
  for (const io::Fd* fd : {&client, &server}) {
    if (buffer_bytes == 0) break;
    setsockopt(fd->get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(fd->get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
  }
  return {.first = std::make_unique<TcpStream>(std::move(client)),
          .second = std::make_unique<TcpStream>(std::move(server))};
}

}  // namespace corro::transport
