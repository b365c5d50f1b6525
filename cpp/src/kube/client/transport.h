// Transport: how one HTTP request reaches an API server and how its answer comes back, piece by
// piece, and how a connection is taken over for another protocol. The client stands on this alone,
// so tests give it scripted answers.
//
//   Exchanged end = transport.exchange({.method = "GET", .target = "/api/v1/pods"}, limits, stop,
//                                      [&](const Head& head, std::string_view piece) {
//                                        text += piece;
//                                        return Status();
//                                      });
//   CORRO_TRY(end.status);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "io/byte_stream.h"

namespace corro::kube {

/// Names in lower case; of several lines of one name the last.
using Headers = std::map<std::string, std::string>;

struct Request {
  std::string method;             ///< "GET", "POST", "PUT", "PATCH", "DELETE".
  std::string target;             ///< Path and query, encoded: "/api/v1/pods?limit=500".
  std::string body = {};          ///< May be empty.
  std::string content_type = {};  ///< Of the body.
  Headers headers = {};           ///< Count before those that the transport writes.
};

inline constexpr int kSwitchingProtocols = 101;

struct Head {
  int status = 0;  ///< 100 to 599, as the server wrote it.
  Headers headers = {};
};

/// How long an exchange may take. The earlier end counts.
struct ExchangeLimits {
  Time deadline = Time::never();                ///< For the whole exchange.
  Duration connect = std::chrono::seconds(10);  ///< For the name, the connection and TLS together.
  Duration answer = std::chrono::seconds(30);   ///< From the request to the answer's head.
  Duration silence = std::chrono::seconds(60);  ///< Without a byte of the body.
};

/// How an exchange ended.
struct Exchanged {
  Status status = {};  ///< ok(): the whole answer was received.
  /// False if no byte of the request can have reached the server: it may be sent again.
  bool sent = false;
};

/// Takes the answer: once with an empty piece when the head is there, then with each piece of the
/// body in order. A failure ends the exchange with that failure. Runs on the thread of exchange().
using Receive = std::function<Status(const Head& head, std::string_view piece)>;

/// Thread-safe: any number of threads may be inside exchange() at once.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Sends a request and hands its answer to `receive`; blocks until the answer has ended. Any
  /// answer is one, 500 too. UNAVAILABLE if the server cannot be reached or the connection is cut;
  /// DEADLINE_EXCEEDED after a limit; CANCELLED as soon as `stop` is requested; UNAUTHENTICATED if
  /// one side's certificate is refused or there is no credential; DATA_LOSS for what is no HTTP.
  [[nodiscard]] virtual Exchanged exchange(const Request& request, const ExchangeLimits& limits,
                                           const std::stop_token& stop, const Receive& receive) = 0;

  /// Does what exchange() does with a request that asks for another protocol, over a connection of
  /// its own: servers end one after they refused. If the answer is 101
  /// Switching Protocols, `stream` is the connection: its first bytes are those behind the answer's
  /// head, and the limits and the stop end nothing any more. It must not outlive the transport. Its
  /// write() may receive by the way: its descriptor tells all that comes after the last read().
  [[nodiscard]] virtual Exchanged upgrade(const Request& request, const ExchangeLimits& limits,
                                          const std::stop_token& stop, const Receive& receive,
                                          std::unique_ptr<io::ByteStream>& stream) = 0;
};

}  // namespace corro::kube
