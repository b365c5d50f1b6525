// HeadLink: a pod's connection to the head of its job.
//
//   dialling   a connection is being made; after 5 s it is given up
//   pausing    the last one has failed: a quarter of a second later there is another
//   there      the head has proved its key, and the first message was sent
//
// From `there` it comes back to `pausing` when the connection ends, or nothing was heard for 10 s.
// It never gives up: whoever has it decides how long to wait.
#pragma once

#include <optional>
#include <string>

#include "agent/message_pipe.h"
#include "io/loop.h"
#include "io/socket.h"
#include "pod/settings.h"
#include "secure/tls_stream.h"

namespace corro::pod {

/// Between two LOOKs, by which each side knows of the other.
inline constexpr Duration kLookPause = std::chrono::seconds(1);

/// Where the head is, and how this pod proves itself to it.
struct WayToHead {
  io::SocketAddress address;
  secure::Tls tls;
};
/// The failure says which variable or file is wrong. Blocks on the file.
[[nodiscard]] Result<WayToHead> way_to_head(const PodSettings& settings);

/// Loop-confined; moves no more once it has dialled. `loop` outlives it.
class HeadLink {
 public:
  struct Options {
    io::SocketAddress head;
    secure::Tls tls;
    wire::Digest job{};
    agent::MessageBody first;  ///< What is said first on each connection.
  };
  /// Reads the key. The failure says which variable or file is wrong. Blocks on the file.
  static Result<Options> options_of(const PodSettings& settings, agent::MessageBody first);

  HeadLink(Options options, io::Loop& loop) : options_(std::move(options)), loop_(loop) {}

  /// Dials, sends and notices silence. To be called in each step, and by next_timer().
  void tick(Time now);
  [[nodiscard]] Time next_timer() const;

  [[nodiscard]] bool is_there() const { return tls_ != nullptr && tls_->is_proved(); }
  /// When it was there last; none: never. While it is, it is now.
  [[nodiscard]] std::optional<Time> last_there() const { return last_there_; }
  /// Why it is not: what has failed last.
  [[nodiscard]] const Status& why() const { return why_; }

  void send(agent::MessageBody body) { send({{.job = options_.job}, std::move(body)}); }
  /// Dropped while it is not there.
  void send(const agent::Message& message);
  [[nodiscard]] std::optional<agent::Message> take();
  [[nodiscard]] bool unsent() const { return pipe_ && pipe_->unsent(); }
  /// Gives the connection away: only READY may have been taken of it.
  [[nodiscard]] agent::MessagePipe release();
  /// Closes the own descriptor alone: to be called in a child that this process has forked.
  void forget();

 private:
  void read();
  void close();
  void dial(Time now);
  void drop(Status why, Time now);

  Options options_;
  io::Loop& loop_;
  std::optional<agent::MessagePipe> pipe_;
  secure::TlsStream* tls_ = nullptr;  ///< That of pipe_.
  Time dialled_{}, heard_{}, dial_at_{};
  std::optional<Time> last_there_;
  Status why_{Code::kUnavailable, "it does not answer"};
};

}  // namespace corro::pod
