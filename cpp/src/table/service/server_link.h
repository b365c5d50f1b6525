// ServerLink: a worker's connection to one server, which it makes again whenever it breaks.
//
//   down         until the pause after the last attempt is over
//   connecting   and then shaking hands: both sides prove that they know the job's secret
//   up           questions go out, answers come in
//
// A connection that breaks takes it back to *down*. Once it is up again it opens its tables, and
// asks once more whatever was not answered, in the same order: for a server a question that it has
// answered before is no other one (served_table.h). A server that cannot be reached for so long, or
// where nobody listens any more for kGoneAfter, is lost.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "io/socket.h"
#include "table/service/messages.h"
#include "wire/handshake.h"

namespace corro::table {

inline constexpr Duration kGoneAfter = std::chrono::milliseconds(100);

/// Loop-confined: whoever waits for its answers polls events() of fd(), and calls advance().
class ServerLink {
 public:
  struct Options {
    wire::HandshakeIdentity identity;  ///< Of the worker.
    wire::Secret secret{};
    int32_t server = 0;
    io::SocketAddress address;
    Duration lost_after{};
    std::function<void(uint32_t server)> on_lost;  ///< The server says so of another one.
  };
  /// What an answer brings, or the server's refusal. The body is the callee's only while it runs.
  using Answer = std::function<void(const Status& status, MessageKind kind, BytesView body)>;

  explicit ServerLink(Options options) : options_(std::move(options)) {}
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  /// Opens a table now, and again on each new connection.
  void open(uint16_t table, Bytes body, Answer answer);
  /// Sends a whole message, whose header has a request of next_request(). `answer` is called once,
  /// or never after forget(). Null: none comes.
  void ask(uint32_t request, Bytes message, Answer answer);
  [[nodiscard]] uint32_t next_request() { return ++last_request_; }
  /// Tells the server that no rank uses another one any more.
  void tell_lost(uint32_t server);
  /// Nobody waits for answers any more.
  void forget_questions();

  /// Does what can be done now. UNAVAILABLE: the server is lost.
  [[nodiscard]] Status advance(Time now);
  /// For poll(2); fd() is -1 while it is down.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] short events() const;
  /// When advance() has something to do even if nothing happens.
  [[nodiscard]] Time wake() const { return state_ == State::kDown ? next_try_ : Time::never(); }
  [[nodiscard]] bool has_questions() const { return !questions_.empty(); }
  /// "server 0 (127.0.0.1:4711)".
  [[nodiscard]] std::string describe() const;
  /// In a forked child, where the connection is the parent's.
  void abandon_in_child() { fd_.reset(); }

 private:
  enum class State : uint8_t { kDown, kConnecting, kShakingHands, kUp };
  struct Question {
    uint32_t request = 0;
    Bytes message;
    Answer answer;
  };
  struct OpenTable {
    uint16_t table = 0;
    Bytes body;
  };

  void connect(Time now);
  Status shake_hands();
  void begin();
  Status exchange();
  Status send();
  Status receive();
  Result<bool> fill(std::span<std::byte> into, size_t& filled);
  void take(const Header& header, BytesView body);
  void go_down(const Status& why, Time now);
  [[nodiscard]] Status lost(Time now) const;

  const Options options_;
  State state_ = State::kDown;
  io::Fd fd_;
  Time next_try_{};
  std::optional<Time> down_since_;  ///< None: it is, or was just, up.
  std::string reason_ = "no answer";
  bool nobody_listens_ = false;
  std::optional<wire::ClientHandshake> handshake_;

  std::vector<OpenTable> open_;
  std::vector<uint32_t> lost_;      ///< Servers of which this one is told.
  std::deque<Question> questions_;  ///< In the order in which they were asked.
  size_t sent_ = 0;                 ///< Questions that were sent on this connection.
  size_t sent_bytes_ = 0;           ///< Of the next one.
  uint32_t last_request_ = 0;

  std::array<std::byte, kHeaderBytes> raw_header_{};
  size_t header_filled_ = 0;
  std::optional<Header> header_;
  Bytes body_;
  size_t body_filled_ = 0;
};

}  // namespace corro::table
