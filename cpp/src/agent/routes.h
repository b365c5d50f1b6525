// Routes: by which addresses hosts reach each other, found by connecting and not by guessing.
//
//   agent of b:  listens, and says who it is (a token) to whoever connects
//   agent of a:  dials all addresses of b at once; those that answer with b's token lead to b
//
// An address alone says little: 172.17.0.1 is every host's own bridge of containers. Nothing of the
// job goes over these connections, and a stranger learns a number that means nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"

namespace corro::agent {

using RouteToken = std::array<std::byte, 16>;

/// Where a host may be reached.
struct RouteTarget {
  int32_t host = 0;  ///< Its number in the job.
  RouteToken token{};
  int32_t port = 0;
  std::vector<std::string> addresses;  ///< Numeric, without a port; the best guess first.
};

/// An address that leads to a host.
struct Route {
  int32_t host = 0;
  std::string address;
};

/// Loop-confined; never blocks.
class Routes {
 public:
  /// Listens on all interfaces, IPv6 and IPv4 where there are both.
  static Result<std::unique_ptr<Routes>> create();

  [[nodiscard]] int32_t port() const { return port_; }
  [[nodiscard]] const RouteToken& token() const { return token_; }
  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  void poll();
  /// From now on this takes over whoever has connected, once the token was sent.
  void on_caller(std::function<void(io::Fd)> take) { take_caller_ = std::move(take); }
  /// Dials all addresses of all targets.
  void dial(const std::vector<RouteTarget>& targets);
  /// No dial is going on.
  [[nodiscard]] bool idle() const { return dials_.empty(); }
  /// What was found, in the targets' order; ends the dials that go on.
  [[nodiscard]] std::vector<Route> take();
  /// All hosts have found their ways: nobody is listened to or dialled any more.
  void close();

 private:
  struct Dial {
    size_t target = 0, address = 0;  ///< Places in what was dialled.
    RouteToken expected{};
    Route route;
    io::Fd fd;
  };
  Routes(io::Epoll epoll, io::Fd listener, int32_t port);
  void accept_all();
  void look_at(size_t place);

  io::Epoll epoll_;
  io::Fd listener_;
  int32_t port_;
  RouteToken token_{};
  std::function<void(io::Fd)> take_caller_;
  io::Fd spare_;             ///< Given up for a caller when no other descriptor is left.
  std::vector<Dial> dials_;  ///< Going on.
  std::vector<Dial> found_;
};

}  // namespace corro::agent
