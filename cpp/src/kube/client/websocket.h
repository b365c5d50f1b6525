// WebSocket: messages both ways over a connection to an API server (RFC 6455).
//
//   CORRO_ASSIGN(auto web, WebSocket::open(client, {target, {"v5.channel.k8s.io"}, name}, stop));
//   web->send("hello");
//   while (!over) CORRO_TRY(web->turn(Time::never(), receive));
//
// The caller's thread does all the work, inside of turn(). A caller with a loop watches fd(), which
// is readable whenever turn() has something to do:
//
//   CORRO_TRY(loop.watch(web->fd(), EPOLLIN, [&] { use(web->turn({}, receive)); }));
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/byte_stream.h"
#include "io/event.h"
#include "kube/client/client.h"
#include "kube/client/websocket_frames.h"

namespace corro::kube {

/// Sec-WebSocket-Accept for a Sec-WebSocket-Key. Pure.
[[nodiscard]] std::string websocket_accept(std::string_view key);

struct WebSocketRequest {
  std::string target;                  ///< Path and query, encoded.
  std::vector<std::string> protocols;  ///< The most wanted first; the server has to choose one.
  std::string name;                    ///< Begins each message of a failure.
};

/// Loop-confined. Answers pings, and sends one every ten seconds: proxies cut connections that are
/// silent for a minute.
class WebSocket {
 public:
  /// The set of the descriptors that a turn waits for. The bell rings for work that no other
  /// descriptor tells, and the alarm goes off for the next ping.
  struct Waits {
    io::Epoll epoll;
    io::EventFd bell;
    io::Alarm alarm;
  };

  /// Asks for the connection, and blocks until the server has answered. `until.deadline` is for the
  /// answer alone; `until.stop` also ends every later turn(). Must not outlive `client`. Fails as
  /// Client::upgrade(), and with DATA_LOSS for an answer that is no WebSocket of these protocols.
  [[nodiscard]] static Result<std::unique_ptr<WebSocket>> open(Client& client,
                                                               const WebSocketRequest& request,
                                                               const Until& until);
  /// For open(), which adds the descriptors to the epoll set.
  WebSocket(std::unique_ptr<io::ByteStream> stream, std::string protocol, std::string name,
            Waits waits, const std::stop_token& stop);
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  [[nodiscard]] const std::string& protocol() const { return protocol_; }
  /// Queues a binary message, which the next turn() sends. The caller looks at unsent() before: the
  /// queue has no bound of its own.
  void send(std::string_view message);
  /// Bytes that are queued.
  [[nodiscard]] size_t unsent() const { return out_.size(); }

  using Receive = std::function<Status(std::string_view message)>;
  /// Waits until there is something to do or it is `until`, and does it: hands messages to
  /// `receive` and sends what is queued. It may do only a part, and returns then. CANCELLED after
  /// the stop; UNAVAILABLE if the server closed or the connection is cut; DATA_LOSS and
  /// RESOURCE_EXHAUSTED as WebSocketReader; what `receive` returns if it fails. After a failure
  /// every turn() fails so.
  [[nodiscard]] Status turn(Time until, const Receive& receive);
  /// Is readable while turn() has something to do, for a loop; not to be read.
  [[nodiscard]] int fd() const { return waits_.epoll.fd(); }

 private:
  [[nodiscard]] Status work(const Receive& receive);
  [[nodiscard]] Status read(const Receive& receive);
  [[nodiscard]] Status take(WebSocketOp op, std::string_view payload, const Receive& receive);
  [[nodiscard]] Status end_with(std::string_view close);
  [[nodiscard]] Status watch();
  void ping_if_due();
  void write();
  void queue(WebSocketOp op, std::string_view payload);

  const std::unique_ptr<io::ByteStream> stream_;
  const std::string protocol_;
  const std::string name_;
  Waits waits_;
  WebSocketReader reader_;
  std::vector<char> piece_;
  std::string out_;
  bool is_watching_room_ = false;
  bool is_broken_ = false;  ///< Nothing can be sent any more.
  Time ping_at_;
  Status end_;
  const std::stop_token stop_;
  const std::stop_callback<std::function<void()>> on_stop_;  ///< Rings the bell.
};

}  // namespace corro::kube
