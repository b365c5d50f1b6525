// Speed test: how long a message takes from this host to another one and back, and how many bytes a
// second go there over one connection. Of `corro doctor`, between two agents.
//
//   SpeedTest, which dials                     SpeedServer, behind the port of the agent's Routes
//        <- token (16 bytes)                   as whoever connects gets it (routes.h)
//   key (16 bytes) ->                          another key than the doctor's: it hangs up
//   'p' ->  <- 'p'                             up to 16 times: the least is the round trip
//   'b', span (8), zeros without end ->
//        <- bytes (8), nanoseconds (8)         after the span: what came, after its first quarter
//   reset                                      so that nothing of it is in the way any more
//
// The first quarter is left out since TCP starts slowly, and shapers let a burst through.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/routes.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"

namespace corro::agent {

/// Who shows it is measured with: both agents have it from their commander.
using SpeedKey = std::array<std::byte, 16>;

/// What a speed test has found.
struct Speed {
  std::string failure;    ///< Why there is nothing; "": all went well.
  Duration round_trip{};  ///< The least of several.
  uint64_t bytes = 0;     ///< What came there ...
  Duration span{};        ///< ... in this time.
};

/// Answers speed tests. Loop-confined; never blocks.
class SpeedServer {
 public:
  static Result<std::unique_ptr<SpeedServer>> create(const SpeedKey& key);

  /// Takes over whoever has connected, and was told the token.
  void add(io::Fd caller);
  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  void poll();

 private:
  struct Caller {
    enum class State : uint8_t { kKey, kLetters, kSpan, kSending, kAnswered };
    io::Fd fd;
    State state = State::kKey;
    Bytes words = {};    ///< Of the key or the span, until they are whole.
    Duration span{};     ///< That was asked for.
    Time began{};        ///< The first bytes came.
    Time since{};        ///< The first quarter was over.
    uint64_t bytes = 0;  ///< That came after it.
  };
  SpeedServer(io::Epoll epoll, const SpeedKey& key);
  [[nodiscard]] bool serve(Caller& caller);
  [[nodiscard]] bool take_words(Caller& caller, BytesView bytes) const;
  [[nodiscard]] static bool take_letter(Caller& caller, std::byte letter);
  static void count(Caller& caller, size_t bytes, Time now);

  io::Epoll epoll_;
  SpeedKey key_;
  Bytes buffer_;
  std::vector<Caller> callers_;
};

/// One test. Loop-confined; never blocks.
class SpeedTest {
 public:
  struct Options {
    RouteTarget target;  ///< Its first address is dialled.
    SpeedKey key{};
    Duration span{};      ///< So long bytes are sent, or ten round trips if that is more.
    Duration patience{};  ///< After it the test is given up.
  };
  static Result<std::unique_ptr<SpeedTest>> create(Options options);

  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  void poll();
  [[nodiscard]] Time deadline() const { return deadline_; }
  /// Ends the test, if it is still going on.
  void give_up();
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  [[nodiscard]] const Speed& result() const { return result_; }
  [[nodiscard]] const RouteTarget& target() const { return options_.target; }

 private:
  enum class State : uint8_t { kConnecting, kPinging, kSending, kDone };
  SpeedTest(io::Epoll epoll, io::Fd fd, Options options);
  void read();
  void take_token();
  void take_pong();
  void take_answer();
  void ping();
  void send_bytes();
  void fail(const std::string& why);
  void finish();

  io::Epoll epoll_;
  io::Fd fd_;
  const Options options_;
  const Time deadline_;
  State state_ = State::kConnecting;
  Bytes received_;
  Time pinged_{}, first_ping_{};
  int pings_ = 0;
  Speed result_;
};

}  // namespace corro::agent
