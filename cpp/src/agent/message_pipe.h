// MessagePipe: messages over two descriptors, a socket's or those of a remote shell, or over what
// else carries bytes.
//
//   MessagePipe pipe(std::move(socket), {});
//   pipe.send({subject, Signal{.number = SIGTERM}});
//   ... when readable: CORRO_TRY(pipe.read()); while (auto message = pipe.take()) ...
//   ... when writable, or at once: pipe.flush();
//   ... or: pipe.watch(loop, handler), and after each turn: pipe.flush_on(loop);
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include "agent/messages.h"
#include "io/byte_stream.h"
#include "io/fd.h"
#include "io/loop.h"

namespace corro::agent {

/// The first bytes of an agent behind a remote shell: the shell's profile may write before them.
inline constexpr std::string_view kPreamble = "\ncorro agent 4bf1c07e\n";

/// Never blocks. Loop-confined. SIGPIPE has to be ignored.
class MessagePipe {
 public:
  /// Takes over both, and makes them non-blocking. Without `out`, `in` is a socket for both ways.
  explicit MessagePipe(io::Fd in, io::Fd out = {});
  explicit MessagePipe(std::unique_ptr<io::ByteStream> stream) : stream_(std::move(stream)) {}
  /// Bytes before kPreamble are not read as messages: at most 64 KiB.
  void expect_preamble() { expects_preamble_ = true; }
  /// Queues kPreamble.
  void send_preamble();

  [[nodiscard]] int in() const { return stream_ ? stream_->in() : -1; }
  [[nodiscard]] int out() const { return stream_ ? stream_->out() : -1; }

  /// Queues a message, and writes what can be written.
  void send(const Message& message);
  /// Writes what can be written of the queue.
  void flush();
  /// Something is queued.
  [[nodiscard]] bool unsent() const { return !queue_.empty(); }
  /// So many bytes are.
  [[nodiscard]] size_t unsent_bytes() const { return queued_; }
  /// Has the handler called when there is something to read, or more can be written.
  Status watch(io::Loop& loop, const io::Loop::Handler& handler);
  /// Writes what can be written, and has the loop say when more can be.
  void flush_on(io::Loop& loop);
  void unwatch(io::Loop& loop);

  /// Reads what is there. DATA_LOSS if it is no message, or why the stream is broken: nothing can
  /// be read any more.
  [[nodiscard]] Status read();
  /// The next message that was read whole.
  [[nodiscard]] std::optional<Message> take();
  /// The other side has gone, in one direction or the other.
  [[nodiscard]] bool ended() const { return ended_; }
  /// The failure of the stream; OK if there is none.
  [[nodiscard]] const Status& failure() const { return failure_; }
  void close();

 private:
  void enqueue(Bytes bytes);
  Status cut();
  [[nodiscard]] Status skip_to_preamble();

  std::unique_ptr<io::ByteStream> stream_;  ///< Null once it was closed.
  Bytes received_;
  std::deque<Message> messages_;
  std::deque<Bytes> queue_;
  io::Loop::Handler handler_;  ///< Of watch().
  bool awaits_room_ = false;   ///< The loop tells when out() takes more.
  size_t written_ = 0;         ///< Of the first in the queue.
  size_t queued_ = 0;          ///< Bytes of the queue.
  bool ended_ = false;
  Status failure_;
  bool expects_preamble_ = false;
};

}  // namespace corro::agent
