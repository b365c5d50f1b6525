// ServerLink: a worker's connection to one server, which it makes again whenever it breaks.
//
//   down         until the pause after the last attempt is over
//   connecting   and then shaking hands: both sides prove that they know the job's secret
//   up           questions go out, answers come in
//
// A connection that breaks takes it back to *down*. Once it is up again what was not answered is asked
// once more (questions.h). A server that cannot be reached for so long, or
// where nobody listens any more for kGoneAfter, is lost.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "io/socket.h"
#include "table/service/questions.h"
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
    std::function<void(const Header& header, BytesView body)> on_news;  ///< LOST or HOLDS.
  };

  explicit ServerLink(Options options) : options_(std::move(options)) {}
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  /// To be asked next. Not to be forgotten here: forget_questions().
  [[nodiscard]] Questions& questions() { return questions_; }
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

  Questions questions_;
  size_t sent_bytes_ = 0;  ///< Of the next one.

  std::array<std::byte, kHeaderBytes> raw_header_{};
  size_t header_filled_ = 0;
  std::optional<Header> header_;
  Bytes body_;
  size_t body_filled_ = 0;
};

}  // namespace corro::table
